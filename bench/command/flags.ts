import { InvalidArgumentError, Option } from 'commander'
import type { AdapterChoice } from '../../node/chromium.ts'

/** Reads a list with commas between, of what is known alone. */
export const someOf =
  <T extends string | number>(known: readonly T[]) =>
  (text: string): T[] =>
    text.split(',').map((part) => {
      const found = known.find((one) => String(one) === part)
      if (found === undefined)
        throw new InvalidArgumentError(
          `Expected one or more of ${known.join(', ')}, got "${part}".`,
        )
      return found
    })

/** Reads a number that is not less than `min`. */
export const atLeast = (min: number) => (text: string) => {
  const value = Number(text)
  if (!Number.isFinite(value) || value < min)
    throw new InvalidArgumentError(`Expected a number of at least ${min}.`)
  return value
}

/** Reads a whole number that is not less than `min`. */
export const countOf = (min: number) => (text: string) => {
  const count = Number(text)
  if (!Number.isSafeInteger(count) || count < min)
    throw new InvalidArgumentError(`Expected a whole number of at least ${min}.`)
  return count
}

export const adapterOption = (): Option =>
  new Option('--adapter <which>', 'auto: a GPU if there is one; software: the CPU adapter')
    .choices(['auto', 'software'] satisfies AdapterChoice[])
    .default('auto')

export const jsonOption = (rows = 'one JSON object per row'): Option =>
  new Option('--json', `${rows} on standard output`).default(false)

export const saveOption = (): Option =>
  new Option('--save', 'also write the table to bench/results/').default(false)
