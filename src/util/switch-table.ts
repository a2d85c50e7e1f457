import * as v from 'valibot'
import { bytesOfUnit } from './byte-units.ts'
import { deviceChoices, maxThreads } from './device.ts'
import type { SwitchName, SwitchValues } from './switch-values.ts'

/** The look-inside switches: one table, from which their readers (`switches.ts`) and docs/reference/switches.md come; the docs' texts are beside the page's script. */

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
  /** True if it changes the numbers of a run, so that all ranks should have the same. */
  readonly isOfRun?: boolean
}

export const switches: { readonly [Name in SwitchName]: Switch<SwitchValues[Name]> } = {
  debug: {
    schema: level,
    type: '0 to 5',
    default: 0,
  },
  naive: {
    schema: boolean,
    type: 'true or false',
    default: false,
    isOfRun: true,
  },
  variant: {
    schema: variants,
    type: '`op:variant`, comma-separated',
    default: {},
    isOfRun: true,
  },
  trace: {
    schema: boolean,
    type: 'true or false',
    default: false,
  },
  drop: {
    schema: v.pipe(amount, v.maxValue(1)),
    type: 'a fraction from 0 to 1',
    default: 0,
  },
  delayMs: {
    schema: amount,
    type: 'milliseconds',
    default: 0,
  },
  stallRank: {
    schema: v.nullable(v.pipe(amount, v.safeInteger())),
    type: 'a rank',
    default: null,
  },
  lanes: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1), v.maxValue(8))),
    type: 'a whole number from 1 to 8',
    default: null,
  },
  device: {
    schema: v.picklist(deviceChoices),
    type: 'auto, webgpu, cpu or reference',
    default: 'auto',
  },
  numThreads: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1), v.maxValue(maxThreads))),
    type: `a whole number from 1 to ${maxThreads}`,
    default: null,
  },
  relaxedMadd: {
    schema: boolean,
    type: 'true or false',
    default: false,
    isOfRun: true,
  },
  visibleDevices: {
    schema: v.nullable(deviceList),
    type: 'distinct device numbers, comma-separated: `0,2`',
    default: null,
  },
  logicalDevices: {
    schema: v.pipe(amount, v.safeInteger(), v.minValue(1)),
    type: 'a whole number of at least 1',
    default: 1,
  },
  memoryCap: {
    schema: v.nullable(byteCount),
    type: 'bytes: `64MB`, `1.5GiB`',
    default: null,
  },
  maxWorkers: {
    schema: v.nullable(v.pipe(amount, v.safeInteger(), v.minValue(1))),
    type: 'a whole number of at least 1',
    default: null,
  },
}

export const switchNames = Object.keys(switches) as SwitchName[]
