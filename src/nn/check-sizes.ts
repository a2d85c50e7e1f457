import type { Pair } from '../graph/functions/pair.ts'
import { checkNumber, isCount } from '../util/options.ts'
import { maxElements } from '../util/shape.ts'

const isSize = (value: number, min: number) =>
  Number.isInteger(value) && value >= min && value <= maxElements

const rangeFrom = (min: number) => `a whole number from ${min} to ${maxElements}`

/** errors: `config.invalid` unless each of the sizes, by name, is a whole number of at least 0 (`min`) that an array can have. */
export function checkSizes(where: string, sizes: Readonly<Record<string, number>>, min = 0): void {
  for (const [name, size] of Object.entries(sizes))
    checkNumber(where, name, size, (one) => isSize(one, min), rangeFrom(min), true)
}

/** errors: `config.invalid` unless a window's size is given, in whole numbers above 0: one, or a pair where `isPair`. */
export function checkKernel(where: string, kernelSize: Pair, isPair: boolean): void {
  checkPair(where, 'kernelSize', kernelSize, isPair, 1)
}

/** errors: the same for the steps and paddings of windows, which may be omitted; a padding may be 0. */
export function checkWindow(where: string, options: object, isPair: boolean): void {
  const min = { stride: 1, dilation: 1, padding: 0, outputPadding: 0 }
  for (const [name, from] of Object.entries(min)) {
    const value: Pair | undefined = Reflect.get(options, name)
    if (value !== undefined) checkPair(where, name, value, isPair, from)
  }
}

function checkPair(where: string, name: string, value: Pair, isPair: boolean, from: number): void {
  const isFit = (one: unknown) => isSize(one as number, from)
  if (isPair && Array.isArray(value) ? value.length === 2 && value.every(isFit) : isFit(value))
    return
  const range = isPair ? `${rangeFrom(from)}, or a pair of them` : rangeFrom(from)
  checkNumber(where, name, value as number, () => false, range, true)
}

/** errors: `config.invalid` unless groups divide the channels on both sides, and there are channels. */
export function checkGroups(
  where: string,
  inChannels: number,
  outChannels: number,
  groups = 1,
): void {
  checkSizes(where, { inChannels, outChannels })
  const isDivisor = (count: number) =>
    isCount(count) && inChannels % count === 0 && outChannels % count === 0
  checkNumber(
    where,
    'groups',
    groups,
    isDivisor,
    `a divisor of ${inChannels} inChannels and ${outChannels} outChannels`,
  )
}
