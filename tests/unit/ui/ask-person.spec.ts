import { expect, it } from 'vitest'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { askOnceItLasts, askPersonMs } from '../../../src/ui/room/ask-person.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

const question = (...missing: string[]) =>
  ({ event: 'undecided', missing, hadMore: false, step: 8, rank: 0 }) as const
const decided = { ...question(), missing: null }

function asking() {
  const env = new VirtualEnv(1)
  const passed: RunEvent[] = []
  const take = askOnceItLasts(
    (event) => passed.push(event),
    (ms, run) => env.after(ms, run),
  )
  return { env, passed, take: (event: RunEvent) => take(event, 0) }
}

it('a person is not asked where it is decided within seconds, as in a tab that has woken', async () => {
  const { env, passed, take } = asking()
  take(question('b.1'))
  await env.advance(askPersonMs - 1)
  take(decided)
  await env.advance(2 * askPersonMs)
  expect(passed).toEqual([decided])
})

it('a person is asked once it lasts, with who is missing by then, and hears at once who is missing later', async () => {
  const { env, passed, take } = asking()
  take(question('b.1'))
  await env.advance(askPersonMs - 1)
  take(question('b.1', 'c.1'))
  await env.advance(1)
  expect(passed).toEqual([question('b.1', 'c.1')])
  take(question('c.1'))
  take(decided)
  take(question('d.1'))
  expect(passed.slice(1)).toEqual([question('c.1'), decided])
})
