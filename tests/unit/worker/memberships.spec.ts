import { expect, test } from 'vitest'
import { PeerError } from '../../../src/util/errors.ts'
import type { Membership } from '../../../src/worker/api.ts'
import { Memberships } from '../../../src/worker/compute/memberships.ts'

const membership = (epoch: number): Membership => ({ epoch, rank: 0, worldSize: 2 })
const gone = new PeerError('peer.lost', 'rank 1 is gone.')

test('a run takes the newest membership, and all that were given resolve once it is in', async () => {
  const memberships = new Memberships(membership(1))
  const given = [2, 3].map((epoch) => memberships.give(membership(epoch)))
  expect(await memberships.next(undefined)).toEqual(membership(3))
  memberships.joined()
  expect(await Promise.all(given)).toEqual([true, true])
})

test('a membership of which a rank is lost is not taken: the next one is', async () => {
  const memberships = new Memberships(membership(1))
  void memberships.give(membership(2))
  memberships.lose(gone)
  const next = memberships.next(gone)
  void memberships.give(membership(3))
  expect(await next).toEqual(membership(3))
})

test('a loss ends the wait for a group, whether it comes before or during the wait', async () => {
  const memberships = new Memberships(membership(1))
  memberships.lose(gone)
  await expect(memberships.lost()).rejects.toBe(gone)
  void memberships.give(membership(2))
  await memberships.next(gone)
  const lost = memberships.lost()
  memberships.lose(gone)
  await expect(lost).rejects.toBe(gone)
})

test('after the end of the run a membership that it was not in resolves with false', async () => {
  const memberships = new Memberships(membership(1))
  const given = memberships.give(membership(2))
  memberships.end()
  expect(await given).toBe(false)
})
