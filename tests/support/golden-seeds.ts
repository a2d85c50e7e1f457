import { afterAll, expect } from 'vitest'
import text from '../golden/seeds.json?raw'

/** What a case of tests/golden/seeds.json has beside those of the file that it belongs to. */
export interface Seeded {
  readonly name: string
  /** The seed of its inputs; none in the other files, whose seed counts as 1. */
  readonly seed?: number
}

const { cases } = JSON.parse(text) as { cases: (Seeded & { file: string })[] }

/** The same cases with inputs from two further seeds. `file`: as tests/golden/seeds.py names it. */
export const seedCases = <Case>(file: string): (Case & Seeded)[] =>
  cases.filter((one) => one.file === file) as unknown as (Case & Seeded)[]

/** A case's name in a title. */
export const titleOf = ({ name, seed }: Seeded): string =>
  seed === undefined ? name : `${name}, seed ${seed}`

/** The largest share of its allowed distance that a result took, by seed. */
const shares = new Map<string, { share: number; title: string }>()

/** Takes a result's distance from PyTorch's float64 and what is allowed, of the test that runs. */
export function noteShare(distance: number, allowed: number): void {
  const title = expect.getState().currentTestName ?? ''
  const seed = /, seed (\d+)/.exec(title)?.[1] ?? '1'
  const share = distance === 0 ? 0 : distance / allowed
  if (share > (shares.get(seed)?.share ?? -1)) shares.set(seed, { share, title })
}

afterAll(() => {
  for (const [seed, { share, title }] of [...shares].sort())
    console.log(`seed ${seed}: at most ${share.toFixed(2)} of the allowed distance (${title})`)
})
