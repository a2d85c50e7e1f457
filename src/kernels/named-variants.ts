import { clipped } from '../util/clipped.ts'
import { ops } from './index.ts'

/**
 * What a text such as `matmul:direct-8x8,softmax:naive` names that no op has, or none of `calls`, or names again: half a sentence each.
 * `calls`: keys of the calls of a step (`variantKey`); without any, only the names are judged.
 */
export function wrongVariants(text: string, calls: readonly string[] = []): string[] {
  const pairs = text === '' ? [] : text.split(',').map((pair) => pair.split(':'))
  return pairs.flatMap(([name, variant], at) => {
    const op = ops.find((one) => one.name === name)
    if (!op) return [`variant names ${clipped(name)}, which is no op`]
    if (pairs.slice(at + 1).some(([later]) => later === name))
      return [`variant names ${name} again; the last counts`]
    const names = op.variants.map((one) => one.name)
    if (!names.includes(variant))
      return [`variant of ${name} must be ${names.join(', ')}, not ${clipped(variant)}`]
    const isUnused = calls.length > 0 && !calls.some((call) => call.startsWith(`${name} `))
    return isUnused ? [`variant names ${name}, which the step of the last run does not have`] : []
  })
}
