import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { chromiumTabs } from '../../../node/chromium-tabs.ts'
import { OutFile } from '../../../node/train/out-file.ts'
import type { TabEvent } from '../../../node/train/tab-group.ts'
import { type TabsOptions, trainInTabs } from '../../../node/train/tabs.ts'
import { writeSafetensors } from '../../../src/data/safetensors.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

/** The launcher over real browser tabs whose page only pretends to train: tests/support/fake-tab.html. */

interface Act {
  kind: string
  rank?: number
  code?: string
  message?: string
  file?: number[]
}

let act: Act = { kind: 'train' }
let ranksGiven = 0
let worldSize = 0
let asking: ServerResponse[] = []
let server: Server
let url: string
let browser: Browser
let folder: string
let out: OutFile | undefined

const weights = writeSafetensors([['w', { dtype: 'F32', shape: [2], data: Float32Array.of(1, 2) }]])

beforeAll(async () => {
  const page = await readFile(new URL('../../support/fake-tab.html', import.meta.url))
  server = createServer((request, response) => {
    const path = request.url?.split('?')[0]
    if (path === '/rank') response.end(String(++ranksGiven))
    else if (path === '/act') {
      asking.push(response)
      if (asking.length === worldSize) for (const one of asking) one.end(JSON.stringify(act))
    } else if (path === '/out') out?.receive(request, response)
    else if (path === '/tab.html') response.setHeader('Content-Type', 'text/html').end(page)
    else response.writeHead(404).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://localhost:${(server.address() as AddressInfo).port}/`
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
}, 120_000)

afterAll(async () => {
  await browser?.close()
  server.close()
  server.closeAllConnections()
  await rm(folder, { recursive: true })
})

/** One run; the fake page opens no socket. */
async function run(next: Act, changes: Partial<TabsOptions> = {}) {
  act = { file: [...weights], ...next }
  ranksGiven = 0
  worldSize = changes.worldSize ?? 2
  asking = []
  if (!browser?.isConnected()) browser = await launchBrowser()
  const events: TabEvent[] = []
  const training = trainInTabs({
    browser: chromiumTabs(browser),
    url,
    worldSize,
    config: parseTrainConfig({ steps: 3, elastic: false }),
    timeoutMs: 20_000,
    signal: new AbortController().signal,
    onEvent: (event) => events.push(event),
    ...changes,
  })
  const outcome = await training.then(
    (results) => ({ results, message: '' }),
    (error) => ({ results: [], message: String(error.message) }),
  )
  if (browser.isConnected()) await Promise.all(browser.contexts().map((context) => context.close()))
  return { ...outcome, events }
}

test('results come in rank order and rank 0 hands over its weights', async () => {
  out = await OutFile.open(join(folder, 'model.safetensors'))
  const { results, events, message } = await run(
    { kind: 'train' },
    { saveTo: '/out', worldSize: 3 },
  )
  expect(message).toBe('')
  expect(results.map(({ rank, bytesSent }) => [rank, bytesSent])).toEqual([
    [0, 1003],
    [1, 1004],
    [2, 1005],
  ])
  expect(events.filter(({ event, rank }) => event === 'step' && rank === 0).length).toBe(3)
  await out.commit()
  expect(new Uint8Array(await readFile(join(folder, 'model.safetensors')))).toEqual(weights)
}, 120_000)

test('weights that are cut short are not put in place', async () => {
  out = await OutFile.open(join(folder, 'cut.safetensors'))
  await run({ kind: 'train', file: [...weights.slice(0, -1)] }, { saveTo: '/out', worldSize: 1 })
  await expect(out.commit()).rejects.toMatchObject({ code: 'data.malformed' })
  await out.discard()
  expect((await readdir(folder)).filter((name) => name.includes('cut'))).toEqual([])
}, 120_000)

test.each<[string, Act, RegExp]>([
  [
    'what a rank reports',
    { kind: 'refuse', rank: 1, code: 'gpu.lost', message: 'the device was lost' },
    /^rank 1: the device was lost$/,
  ],
  [
    'an uncaught error',
    { kind: 'throw', rank: 1 },
    /^rank 1: uncaught error in its page: Error: the page is broken$/,
  ],
  [
    'the cause rather than an abort that came first',
    { kind: 'abort-first', rank: 1 },
    /^rank 1: the loss is NaN$/,
  ],
  [
    'different parameters',
    { kind: 'diverge', rank: 1 },
    /ranks end with different parameters \(hashes beef bad\)/,
  ],
])(
  '%s is reported in one line',
  async (_, next, pattern) => {
    expect((await run(next)).message).toMatch(pattern)
  },
  120_000,
)

test('the timeout names the silent ranks and what each last did', async () => {
  const { message } = await run({ kind: 'silent' }, { timeoutMs: 6000 })
  expect(message).toBe(
    'no message within 6 s from rank 0 (compile), rank 1 (compile). Raise --timeout if the machine is slow.',
  )
}, 120_000)

test('a missing page, a crashed tab, a dead browser and an abort', async () => {
  expect((await run({ kind: 'train' }, { url: `${url}nowhere/` })).message).toMatch(
    /^tab [12] of 2: its page did not open: net::ERR_HTTP_RESPONSE_CODE_FAILURE$/,
  )

  const onceAllWait = (then: () => unknown) => {
    const waiting = new Set<number>()
    return (event: TabEvent) => {
      if (event.event === 'phase' && event.phase === 'compile') waiting.add(event.rank)
      if (waiting.size === 2) then()
    }
  }
  const crash = () => {
    const page = browser.contexts().at(-1)!.pages()[0]
    page.goto('chrome://crash').catch(() => undefined)
  }
  expect((await run({ kind: 'wait' }, { onEvent: onceAllWait(crash) })).message).toMatch(
    /^rank 1: its tab crashed\./,
  )

  const controller = new AbortController()
  const abort = () => controller.abort(new Error('stopped by hand'))
  expect(
    (await run({ kind: 'wait' }, { onEvent: onceAllWait(abort), signal: controller.signal }))
      .message,
  ).toBe('stopped by hand')

  expect(
    (await run({ kind: 'wait' }, { onEvent: onceAllWait(() => void browser.close()) })).message,
  ).toMatch(/^browser: it crashed or was closed before the run ended\.|its tab was closed before/)
}, 120_000)
