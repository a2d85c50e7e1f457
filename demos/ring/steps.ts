import type { DataMessage } from './recorder.ts'

/** Messages of one half that wait for equally many others: one step of it. */
export interface Step {
  readonly into: DataMessage['into']
  /** From 1, in its half. */
  readonly number: number
  /** Steps of its half. */
  readonly of: number
  readonly messages: readonly DataMessage[]
  /** When the last message of it, and of the steps before it, has arrived. */
  readonly endMs: number
}

const placeOf = ({ hop, into }: DataMessage): number => 2 * hop + (into === 'sum' ? 0 : 1)

/** The steps of a run, in order. */
export function stepsIn(messages: readonly DataMessage[]): Step[] {
  const places = [...new Set(messages.map(placeOf))].sort((a, b) => a - b)
  let endMs = 0
  return places.map((place) => {
    const own = messages.filter((message) => placeOf(message) === place)
    const half = places.filter((other) => other % 2 === place % 2)
    endMs = Math.max(endMs, ...own.map(({ arrivedMs }) => arrivedMs))
    const number = half.indexOf(place) + 1
    return { into: own[0].into, number, of: half.length, messages: own, endMs }
  })
}
