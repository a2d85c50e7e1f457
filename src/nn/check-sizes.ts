import type { Pair } from '../graph/functions/pair.ts'
import { checkNumber, isCount } from '../util/options.ts'

const isSize = (value: number) => Number.isInteger(value) && value >= 0

/** errors: `config.invalid` unless each of the sizes, by name, is a whole number of at least 0. */
export function checkSizes(where: string, sizes: Readonly<Record<string, number>>): void {
  for (const [name, size] of Object.entries(sizes))
    checkNumber(where, name, size, isSize, 'a whole number of at least 0', true)
}

/** errors: `config.invalid` unless a window's size is given, in whole numbers above 0: one, or a pair where `isPair`. */
export function checkKernel(where: string, kernelSize: Pair, isPair: boolean): void {
  const isFit =
    typeof kernelSize === 'number'
      ? isCount(kernelSize)
      : isPair && Array.isArray(kernelSize) && kernelSize.length === 2 && kernelSize.every(isCount)
  if (isFit) return
  const range = isPair ? 'a whole number above 0, or a pair of them' : 'a whole number above 0'
  checkNumber(where, 'kernelSize', kernelSize as number, () => false, range, true)
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
