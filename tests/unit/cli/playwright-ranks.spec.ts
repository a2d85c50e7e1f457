import type { Browser } from 'playwright'
import { expect, test } from 'vitest'
import { environmentOf } from '../../../node/playwright/rank-group.ts'
import { OpenRanks } from '../../../node/playwright/ranks.ts'
import { relayChoices } from '../../../src/distributed/rendezvous/plan-links.ts'
import { newRoomUrl, parseRoomUrl } from '../../../src/peer/room/room-url.ts'

/** The environment of ranks of a Playwright test. tests/all/e2e/library-project.spec.ts opens them. */

test.each(relayChoices)('a rank of a test has RELAY=%s where it is asked for', (relay) => {
  const address = new URL('https://localhost/train')
  const room = parseRoomUrl('test', newRoomUrl(address))
  const { variables, args } = environmentOf(1, room, { worldSize: 2, address, args: ['-v'], relay })
  expect(args).toEqual(['-v'])
  expect(variables).toMatchObject({
    RANK: '1',
    WORLD_SIZE: '2',
    MASTER_ADDR: 'localhost',
    MASTER_PORT: '443',
    ROOM_KEY: room.link.key,
    RELAY: relay,
  })
})

test('ranks.open refuses what is no choice of a relay, before a browser is asked', async () => {
  const asked = new Proxy({} as Browser, {
    get: () => expect.unreachable('asked for a context'),
  })
  const ranks = new OpenRanks({
    browser: asked,
    baseURL: 'http://localhost',
    onSay: () => undefined,
  })
  await expect(ranks.open(2, '/', { relay: 'on' as 'off' })).rejects.toThrow(
    "ranks.open: relay must be one of 'off', 'fallback', got \"on\".",
  )
})
