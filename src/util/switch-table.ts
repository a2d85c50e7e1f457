import * as v from 'valibot'
import { bytesOfUnit } from './byte-units.ts'
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

/** A number of bytes, or a text such as `64MB` or `1.5GiB`. */
const byteCount = v.pipe(
  v.union([
    v.number(),
    v.pipe(
      v.string(),
      v.regex(/^\d+(\.\d+)?(B|[KMG]i?B)?$/),
      v.transform((text) => {
        const [, number, , unit = 'B'] = /^(\d+(\.\d+)?)(\D+)?$/.exec(text)!
        return Math.floor(Number(number) * bytesOfUnit[unit])
      }),
    ),
  ]),
  v.safeInteger(),
  v.minValue(1),
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
      'Logs to the console; each level includes the lower ones:',
      '`1` lifecycle: adapter and limits, devices lost and reopened, rooms, epochs, ranks',
      '`2` a table of kernel times from timestamp queries, after runs 1, 2, 4, 8 … of each program (means since the previous table); a line of totals per run; a line per collective',
      '`3` the plan of each program: buffers, reuse, peak bytes, buckets, and the variant chosen for each op with the reason',
      '`4` the WGSL of each pipeline as submitted',
      '`5` checks every value of every run: scans for NaN and infinities after each op, and compares each op with its reference (one rank only; slow). On the cpu, where ops run as their references, only the scan applies, and levels 2 to 4 log nothing',
    ],
  },
  naive: {
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'Turns off rewrites and uses the first variant of every op, as the option `useNaiveKernels` of `compile` does for one program.',
    ],
    isOfRun: true,
  },
  variant: {
    schema: variants,
    type: '`op:variant`, comma-separated',
    default: {},
    effect: [
      'Forces variants for the calls that they can run: `matmul:direct-8x8`. Takes precedence over tuned variants and the fixed table.',
    ],
    isOfRun: true,
  },
  trace: {
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'Records spans of steps, kernels and collectives: as performance.measure in the performance panel of the developer tools, and as a Chrome trace for Perfetto or speedscope (`exportTrace()`, the button below a finished run, `--trace FILE` of the launcher).',
    ],
  },
  drop: {
    schema: v.pipe(amount, v.maxValue(1)),
    type: 'a fraction from 0 to 1',
    default: 0,
    effect: ['Drops this fraction of the messages that this rank sends to others.'],
  },
  delayMs: {
    schema: amount,
    type: 'milliseconds',
    default: 0,
    effect: ['Delays each message to other ranks by this time.'],
  },
  stallRank: {
    schema: v.nullable(v.pipe(amount, v.safeInteger())),
    type: 'a rank',
    default: null,
    effect: ['This rank silently sends nothing to others. Set it on every rank.'],
  },
  lanes: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1), v.maxValue(8))),
    type: 'a whole number from 1 to 8',
    default: null,
    effect: [
      'Opens this many connections per WebRTC link, because the data in flight per round trip limits the rate of one connection. Default: one; four where the round trip takes 5 ms or more; eight from 40 ms. `debug=1` logs the number. The side with the lower rank decides.',
    ],
  },
  cpu: {
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'The pages compute on the CPU with the plain references: slow. `--device cpu` of the launcher sets it, `--device webgpu` unsets it. In the library, use `setDefaultDevice("cpu")`.',
    ],
  },
  visibleDevices: {
    schema: v.nullable(deviceList),
    type: 'distinct device numbers, comma-separated: `0,2`',
    default: null,
    effect: [
      'Makes only these WebGPU devices visible and renumbers them in this order, like CUDA_VISIBLE_DEVICES: with `1`, `webgpu:0` is device 1. The list ends at the first number that has no device; an empty list or `-1` hides all. By default all devices are visible: 0 is the fastest adapter, followed by the low-power adapter and the software adapter of the browser, if they are different ones. In code: `gpu.setVisibleDevices("0,2")`, before a device is opened.',
    ],
  },
  logicalDevices: {
    schema: v.pipe(amount, v.safeInteger(), v.minValue(1)),
    type: 'a whole number of at least 1',
    default: 1,
    effect: [
      'Splits each adapter into this many devices, which share its compute units but no memory: with `2` on one adapter, `webgpu:0` and `webgpu:1` are two devices of it. `visibleDevices` numbers these. Use it to try multi-device code on one adapter. In code: `gpu.logicalDevices(2)`, before a device is opened.',
    ],
  },
  memoryCap: {
    schema: v.nullable(byteCount),
    type: 'bytes: `64MB`, `1.5GiB`',
    default: null,
    effect: [
      'Refuses a buffer with which a WebGPU device would hold more than this, as if it had no more memory. The error names the tensors and what is taken. Use it to plan for smaller devices, or to leave memory to others. In code: `gpu.setMemoryCap("64MB")`.',
    ],
  },
  maxWorkers: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1))),
    type: 'a whole number of at least 1',
    default: null,
    effect: [
      'Limits how many workers a `DataLoader` starts, whatever its `numWorkers` is; batches and their order stay the same. `--cpus-per-task` of `tabring run` and SLURM_CPUS_PER_TASK set it.',
    ],
  },
}

export const switchNames = Object.keys(switches) as SwitchName[]
