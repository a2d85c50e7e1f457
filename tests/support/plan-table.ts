import { readFileSync } from 'node:fs'
import type { Plan } from '../../src/graph/plan/plan.ts'

const page = readFileSync(new URL('../../docs/how-it-works/float16.md', import.meta.url), 'utf8')
const rows = page
  .split('\n')
  .filter((line) => line.startsWith('| '))
  .map((line) =>
    line
      .slice(1, line.lastIndexOf('|'))
      .split('|')
      .map((cell) => cell.trim()),
  )

/** The names of the plans in the table of docs/how-it-works/float16.md. */
export function documentedPlans(): string[] {
  const first = rows.findIndex(([name]) => name === "bytes of a step's intermediates") + 1
  const length = rows.slice(first).findIndex((cells) => cells.length !== 5)
  return rows.slice(first, first + length).map(([name]) => name)
}

/** What the table of docs/how-it-works/float16.md says of a plan: its bytes under autocast and in float32, their share, the dispatches. */
export const documentedPlan = (name: string): string[] | undefined =>
  rows.find(([first]) => first === name)?.slice(1)

/** What it should say. */
export function measuredPlan(half: Plan, full: Plan): string[] {
  const bytes = [half, full].map(({ peakBytes }) => peakBytes.toLocaleString('en-US'))
  const share = (half.peakBytes / full.peakBytes).toFixed(3)
  return [...bytes, share, `${half.dispatches.length}, ${full.dispatches.length}`]
}
