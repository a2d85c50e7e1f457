import * as v from 'valibot'
import type { SwitchName, SwitchValues } from './switch-values.ts'

/** The look-inside switches: one table, from which their readers (`switches.ts`) and docs/reference/switches.md come. */

const boolean = v.pipe(
  v.union([v.boolean(), v.picklist(['1', 'true', '', '0', 'false'])]),
  v.transform((value) => value === true || value === '1' || value === 'true' || value === ''),
)

const level = v.pipe(
  v.union([v.number(), v.pipe(v.string(), v.regex(/^\d+$/), v.transform(Number))]),
  v.safeInteger(),
  v.minValue(0),
  v.maxValue(5),
)

/** A number at least 0, or a text of one. */
const amount = v.pipe(
  v.union([v.number(), v.pipe(v.string(), v.regex(/^\d+(\.\d+)?$/), v.transform(Number))]),
  v.finite(),
  v.minValue(0),
)

/** `matmul:direct-8x8,softmax:naive`, or the same as an object. */
const variants = v.union([
  v.record(v.string(), v.string()),
  v.pipe(
    v.string(),
    v.regex(/^([\w-]+:[\w-]+(,[\w-]+:[\w-]+)*)?$/),
    v.transform(
      (text): Record<string, string> =>
        Object.fromEntries(text ? text.split(',').map((pair) => pair.split(':')) : []),
    ),
  ),
])

/**
 * `0,2`: which devices, each once; a negative number is that of no device, as in CUDA_VISIBLE_DEVICES.
 *
 * Quotes around it belong to a shell; an address has none, so that they are taken off here.
 */
const deviceList = v.pipe(
  v.string(),
  v.transform((text) => text.replace(/^(["'])(.*)\1$/, '$2').replaceAll(' ', '')),
  v.regex(/^(-?\d+(,-?\d+)*)?$/),
  v.check((text) => {
    const numbers = text.split(',').map(Number)
    return new Set(numbers).size === numbers.length
  }),
)

export interface Switch<Value> {
  readonly schema: v.GenericSchema<unknown, Value>
  /** What it may be, for people. */
  readonly type: string
  readonly default: Value
  /** What it does, in Markdown; one entry a value where values differ. */
  readonly effect: readonly string[]
  /** Whether it changes the numbers of a run, so that all ranks should have the same. */
  readonly isOfRun?: boolean
}

export const switches: { readonly [Name in SwitchName]: Switch<SwitchValues[Name]> } = {
  debug: {
    schema: level,
    type: '0 to 5',
    default: 0,
    effect: [
      'Tells on the console, each level with those below it:',
      '`1` lifecycle: adapter and limits, devices lost and opened again, rooms, epochs, ranks',
      '`2` a table of kernels with times from timestamp queries, after runs 1, 2, 4, 8 … of each program, means since the table before; a line of totals a run; a line a collective',
      '`3` the plan of each program: buffers, reuse, peak bytes, buckets, the variant of each op and why',
      '`4` the WGSL of each pipeline as submitted',
      '`5` every value of every run: a scan for NaN and infinities after each op, and each op against its reference (one rank; slow). On the cpu, where ops are their references, the scan alone, and levels 2 to 4 have nothing to tell',
    ],
  },
  naive: {
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: ['No rewrites and the first variant of every op.'],
    isOfRun: true,
  },
  variant: {
    schema: variants,
    type: '`op:variant`, more after commas',
    default: {},
    effect: [
      'Forces variants, where they can run a call: `matmul:direct-8x8`. It goes before tuned ones and the fixed table.',
    ],
    isOfRun: true,
  },
  trace: {
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'Spans of steps, kernels and collectives: as performance.measure in the performance panel of the developer tools, and as a Chrome trace, which Perfetto and speedscope read (`exportTrace()`, a button under a finished run, `--trace FILE` of the launcher).',
    ],
  },
  drop: {
    schema: v.pipe(amount, v.maxValue(1)),
    type: 'a share from 0 to 1',
    default: 0,
    effect: ['Loses this share of the messages that this rank sends to others.'],
  },
  delayMs: {
    schema: amount,
    type: 'milliseconds',
    default: 0,
    effect: ['Sends each message to other ranks so much later.'],
  },
  stallRank: {
    schema: v.nullable(v.pipe(amount, v.safeInteger())),
    type: 'a rank',
    default: null,
    effect: ['This rank sends nothing to others, and tells nobody. Give it to every rank.'],
  },
  lanes: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1), v.maxValue(8))),
    type: 'a whole number from 1 to 8',
    default: null,
    effect: [
      'Each WebRTC link is so many connections. Without it: one, four where the round trip is 5 ms or more, eight from 40 ms on, because the rate of one is bounded by what it may have under way in a round trip. `debug=1` tells which. The side with the lower rank decides.',
    ],
  },
  cpu: {
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'The pages compute on the CPU with the plain references: slow. `--device cpu` of the launcher sets it, `--device webgpu` takes it back. The library has `setDefaultDevice("cpu")`.',
    ],
  },
  visibleDevices: {
    schema: v.nullable(deviceList),
    type: 'a text of device numbers, each once, with commas: `0,2`',
    default: null,
    effect: [
      'Only these WebGPU devices are there, numbered anew in this order, as CUDA_VISIBLE_DEVICES has it: with `1`, `webgpu:0` is device 1. Those from the first on that does not exist are left out; an empty text hides all, and so does `-1`. Without it all are visible: 0 is the fastest adapter, then comes the one that saves power and, last, the software adapter of the browser, where they are others. In code: `gpu.setVisibleDevices("0,2")`, before a device is opened.',
    ],
  },
  logicalDevices: {
    schema: v.pipe(amount, v.safeInteger(), v.minValue(1)),
    type: 'a whole number from 1',
    default: 1,
    effect: [
      'Each adapter counts as so many devices, which share its compute units but no memory: with `2` on one adapter, `webgpu:0` and `webgpu:1` are two devices of it. `visibleDevices` numbers these. For trying code for several devices where there is one. In code: `setSwitches({ logicalDevices: 2 })`, before a device is opened.',
    ],
  },
  maxWorkers: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1))),
    type: 'a whole number from 1',
    default: null,
    effect: [
      'A `DataLoader` starts at most so many workers, whatever its `numWorkers` says; batches and their order stay the same. `--cpus-per-task` of `tabring run` sets it, and SLURM_CPUS_PER_TASK does.',
    ],
  },
}

export const switchNames = Object.keys(switches) as SwitchName[]
