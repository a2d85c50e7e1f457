import { expect, test } from 'vitest'
import { LinkVote, voteIn } from '../../../src/peer/tab/link-vote.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

// Two sides whose words take 5 ms; each connects after some time, or not.

const after = (env: VirtualEnv, ms: number) =>
  new Promise<void>((resolve) => {
    env.after(ms, resolve)
  })

/** When a side's connection is there, or what it fails with. */
type Connecting = { upMs: number } | { failsMs: number }

function sides(env: VirtualEnv, connecting: readonly [Connecting, Connecting], isMute = false) {
  const both = [new LinkVote(env), new LinkVote(env)]
  const words: boolean[][] = [[], []]
  const settled = connecting.map(async (one, side) => {
    const own =
      'upMs' in one
        ? after(env, one.upMs)
        : after(env, one.failsMs).then(() => Promise.reject(new Error('no way')))
    const send = (isUp: boolean) => {
      words[side]!.push(isUp)
      if (isMute && side === 1) return
      void after(env, 5).then(() => both[1 - side]!.receive(isUp))
    }
    const areUp = await both[side]!.areUp(own, send, `rank ${1 - side}`)
    return { areUp, atMs: env.now() }
  })
  return { settled, words }
}

test.each<[string, [Connecting, Connecting], boolean, [number, number]]>([
  ['up on both', [{ upMs: 10 }, { upMs: 30 }], true, [35, 30]],
  ['up on neither', [{ failsMs: 10 }, { failsMs: 30 }], false, [10, 15]],
  ['up on one: the other tells it at once', [{ upMs: 100 }, { failsMs: 0 }], false, [5, 0]],
  ['up on one, which hears it late', [{ upMs: 10 }, { failsMs: 200 }], false, [205, 200]],
])('%s', async (_, connecting, areUp, [firstMs, secondMs]) => {
  const env = new VirtualEnv(1)
  const { settled, words } = sides(env, connecting)
  const got = await env.until(Promise.all(settled))
  expect(got).toEqual([
    { areUp, atMs: firstMs },
    { areUp, atMs: secondMs },
  ])
  expect(words.map((own) => own.length)).toEqual([1, 1])
})

test('linkVote times out and names the side that does not vote', async () => {
  const env = new VirtualEnv(1)
  const { settled } = sides(env, [{ upMs: 10 }, { upMs: 10 }], true)
  await expect(env.until(settled[0]!)).rejects.toMatchObject({
    code: 'peer.unreachable',
    message: expect.stringMatching(
      /^link to rank 1: the other tab did not confirm the connection within 25000 ms/,
    ),
  })
})

test('voteIn returns undefined for other signals', () => {
  expect(
    [{ isUp: true }, { isUp: false }, { isUp: 1 }, { isUp: true, lane: 1 }, [], null].map(voteIn),
  ).toEqual([true, false, undefined, undefined, undefined, undefined])
})
