import { checkSeed } from '../replay.ts'
import { type ElasticOutcome, simulateElastic } from './elastic.ts'
import { type Cell, cells, drawElastic, type WorldKind } from './plan.ts'

/** Max number of seeds that are tried for a cell's fault. */
const maxDrawn = 800

/** Runs the world of a seed. errors: what was violated, and the command that replays it. */
export function checkElastic(seed: number, kind: WorldKind = {}): Promise<ElasticOutcome> {
  return checkSeed(seed, replayOf(seed, kind), (_, trace) =>
    simulateElastic(drawElastic(seed, kind), trace),
  )
}

/** The command that runs a seed again and shows all that happened in it. */
function replayOf(seed: number, { cell, members: range, liar }: WorldKind): string {
  const members = range === undefined ? '' : ` --members ${range.join(':')}`
  const which = cell ? ` --cell "${nameOf(cell)}"` : ''
  const lies = liar ? ` --liar ${liar}` : ''
  return `npm run simulate -- elastic --seed ${seed}${members}${which}${lies}`
}

const nameOf = ({ kind, moment, role }: Cell): string => [kind, moment, role].join(', ')

/** The cell with that name; undefined for none. */
export const cellOf = (name: string): Cell | undefined =>
  cells.find((cell) => nameOf(cell) === name)

/** Runs seeds from `first` on, until the cell's fault was injected in `count`. errors: also where it is not. */
export async function injectCell(
  cell: Cell,
  count: number,
  first = 1,
  onseed: (outcome: ElasticOutcome) => void = () => undefined,
): Promise<void> {
  let injected = 0
  for (let seed = first; injected < count; seed++) {
    if (seed === first + maxDrawn)
      throw new Error(
        `${nameOf(cell)}: struck in ${injected} of ${maxDrawn} seeds, expected ${count}. Name it in plan.ts with the reason, or draw what leads to it.`,
      )
    const outcome = await checkElastic(seed, { cell })
    onseed(outcome)
    if (hasInjected(outcome, cell)) injected++
  }
}

const hasInjected = ({ injected }: ElasticOutcome, { kind, moment, role }: Cell): boolean =>
  injected.some((one) => one.kind === kind && one.moment === moment && one.role === role)
