import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'

/** One number for both axes, or one for rows and one for columns. */
export type Pair = number | readonly [number, number]

/** errors: `shape.unsupported`, naming the function and its argument, for what is neither a number nor two of them. */
export function pair(where: string, name: string, value: Pair): [number, number] {
  const both = typeof value === 'number' ? [value, value] : value
  if (Array.isArray(both) && both.length === 2 && both.every((one) => typeof one === 'number')) {
    return [both[0], both[1]]
  }
  throw new ShapeError(
    'shape.unsupported',
    `${where}: ${name} must be a number, or two (rows, columns), got ${quoted(value)}. Pass one of these.`,
  )
}
