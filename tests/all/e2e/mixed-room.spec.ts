import { afterAll, beforeAll, expect, test } from 'vitest'
import { servePages } from '../../../node/own-pages.ts'
import type { Served } from '../../../node/serve.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import type { Trained } from '../../e2e/fixtures/mixed-rank.ts'
import { hashes200 } from '../../support/cpu-hashes.ts'
import { useFirefox } from '../../support/firefox-pages.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { startNode } from '../../support/program-process.ts'
import { repository } from '../../support/repository.ts'

const page = 'tests/e2e/fixtures/mixed.html'
const program = "(await import('vite')).runnerImport('tests/e2e/fixtures/mixed-rank.ts')"
const openInFirefox = useFirefox()
let served: Served
beforeAll(async () => {
  served = await servePages(page)
})
afterAll(() => served?.close())

/** What a tab's rank ends with, once its module has come. */
async function ofTab(): Promise<Trained> {
  const own = globalThis as { trained?: Promise<Trained> }
  while (!own.trained) await new Promise((resolve) => setTimeout(resolve, 50))
  return own.trained
}

test('a tab of Chromium, one of Firefox and a process of Node train as three ranks to the committed bits', async () => {
  const { host, hash } = new URL(newRoomUrl(served.localUrl))
  const variables = { WORLD_SIZE: '3', MASTER_URL: `ws://${host}/signal`, RELAY: 'fallback' }
  const address = (rank: number) =>
    `${served.localUrl}${page}?${new URLSearchParams({ RANK: `${rank}`, ...variables })}${hash}`
  const ROOM_KEY = new URLSearchParams(hash.slice(1)).get('key')!
  const flags = 'WebSocket' in globalThis ? [] : ['--experimental-websocket']
  const { child, received, ended } = startNode(
    repository,
    [...flags, '--input-type=module', '--eval', program],
    { RANK: '2', ...variables, ROOM_KEY },
  )
  const ofNode = ended.then((code): Trained => {
    expect(code, received.stderr).toBe(0)
    return JSON.parse(received.stdout)
  })
  const browser = await launchBrowser()
  try {
    const tab = await browser.newPage()
    await tab.goto(address(0))
    const guest = await openInFirefox(address(1))
    const trained = [tab.evaluate(ofTab), guest.evaluate(ofTab, null), ofNode]
    const { 'mlp adamw': mlp, 'cnn adamw': cnn } = hashes200
    // That of the same program on one rank in Node; the built-in training of the GPT rounds otherwise.
    const hashes = { 'mlp adamw': mlp, 'cnn adamw': cnn, 'gpt adamw': '064d16b2405a2651' }
    expect(await Promise.all(trained)).toEqual([
      { rank: 0, links: { 1: 'webrtc', 2: 'relay' }, hashes },
      { rank: 1, links: { 0: 'webrtc', 2: 'relay' }, hashes },
      { rank: 2, links: { 0: 'relay', 1: 'relay' }, hashes },
    ])
  } finally {
    child.kill()
    await browser.close()
  }
}, 300_000)
