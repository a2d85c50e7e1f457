import { expect, test } from 'vitest'
import { WatchAct } from '../../../src/ui/members/watch-act.tsx'
import { idleActs } from '../../../src/ui/state/acts.ts'
import { checkedDraft, checkedWithout } from '../../../src/ui/state/room-facts.ts'
import { inside, makeLobby, play } from '../../support/page-states.ts'

/** A room of four with `watching` of them onlookers; this tab is the host. */
const room = (watching: readonly number[]) => {
  const { members: all, ...lobby } = makeLobby(4)
  const watches = (at: number) => watching.includes(at)
  const members = all.filter((_, at) => !watches(at))
  const watchers = all.filter((_, at) => watches(at)).map((one) => ({ ...one, watches: true }))
  const ownId = all[0].id
  return play(inside(4), { type: 'lobby', lobby: { ...lobby, members, watchers }, ownId })
}

test('checkedWithout counts the ranks that stay when an onlooker is removed', () => {
  const snapshot = room([3])
  const { id } = snapshot.lobby!.watchers![0]
  expect(checkedWithout(snapshot, [id])).toEqual(checkedDraft(snapshot, 3))
  const other = snapshot.lobby!.members[2].id
  expect(checkedWithout(snapshot, [other, id])).toEqual(checkedDraft(snapshot, 2))
})

test('WatchAct offers a host a rank when it watches', () => {
  const words = (watching: readonly number[]) =>
    WatchAct({ snapshot: room(watching), acts: idleActs })?.props.children
  expect(words([0])).toBe('Take part')
  expect(words([3])).toBeUndefined()
})
