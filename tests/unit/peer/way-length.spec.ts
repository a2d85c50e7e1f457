import { expect, test } from 'vitest'
import { wayLength } from '../../../src/peer/tab/round-trip.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

const isShort = (ms: number) => ms < 5

/** Looks at a way whose trips are given, look by look; says how often it was looked at, and for how long. */
async function look(...looks: number[][]) {
  const env = new VirtualEnv()
  let at = 0
  let tookMs = 0
  const found = wayLength(async () => looks[Math.min(at++, looks.length - 1)]!, isShort, env).then(
    (ms) => {
      tookMs = env.now()
      return ms
    },
  )
  await env.advance(10_000)
  return { ms: await found, looks: at, tookMs }
}

test('a short way is accepted after one round, though one answer was late', async () => {
  expect(await look([0.6, 40, 0.7])).toEqual({ ms: 0.6, looks: 1, tookMs: 0 })
})

test('a long way with equal trips is accepted after one round', async () => {
  expect(await look([22.1, 22.6, 23])).toEqual({ ms: 22.1, looks: 1, tookMs: 0 })
})

test('a short way between busy tabs is measured again until they answer in time', async () => {
  const found = await look([6, 31, 14], [9, 16, 11], [7, 9, 30], [0.9, 4, 2])
  expect(found).toEqual({ ms: 0.9, looks: 4, tookMs: 350 })
})

test('a long way whose trips stay uneven has the time of its shortest trip, after all rounds', async () => {
  expect(await look([30, 50], [25, 41])).toEqual({ ms: 25, looks: 6, tookMs: 1550 })
})
