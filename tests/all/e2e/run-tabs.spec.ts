import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { chromiumTabs } from '../../../node/chromium-tabs.ts'
import { type BuiltProgram, buildProgram } from '../../../node/launch/build-program.ts'
import { countTabs } from '../../../node/launch/devices.ts'
import type { TabChoice } from '../../../node/launch/flags.ts'
import { sourceLines } from '../../../node/launch/source-lines.ts'
import { runTabs } from '../../../node/launch/tabs.ts'
import { type Served, serve } from '../../../node/serve.ts'
import type { TabFailure } from '../../../node/tabs.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

/** The tabs of a launcher: what ends a rank, and how that is reported. */

let folder: string
let built: BuiltProgram
let served: Served
let browser: Browser

/** A user's module that does what its first argument says. */
const program = `
import { args, env, reportProgress, spawn } from 'tabring/distributed'
import { runtimeOf } from 'tabring/runtime'

console.log('up', env.RANK)
switch (args[0]) {
  case 'wait':
    await new Promise(() => undefined)
  case 'throw':
    throw new Error('outer', { cause: new TypeError('inner') })
  case 'late-timeout':
    await new Promise((resolve) => setTimeout(resolve, 500))
    throw Object.assign(new Error('barrier: rank 1 waited'), { code: 'peer.timeout' })
  case 'text':
    throw 'a text'
  case 'late':
    setTimeout(() => { throw new Error('from a timer') })
    await new Promise(() => undefined)
  case 'reload':
    location.reload()
    await new Promise(() => undefined)
  case 'unset':
    env.MASTER_ADDR
  case 'worker': {
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' })
    await new Promise((resolve) => { worker.onmessage = resolve })
    await new Promise((resolve) => setTimeout(resolve, 100))
    break
  }
  case 'spawn': {
    const rank = () => new Worker(new URL('./spawned.ts', import.meta.url), { type: 'module' })
    console.log('sums', await spawn(rank, { nprocs: 2, args: [10] }))
    await spawn(rank, { nprocs: 2, args: [-1] })
    break
  }
  case 'words':
    console.info('info', { a: 1 })
    console.debug('debug')
    console.error('error\\n')
    console.assert(false, 'assertion')
    console.group('group')
    console.groupEnd()
    console.clear()
    reportProgress({ step: 1, totalSteps: 2 })
    await runtimeOf('cpu')
    await runtimeOf('cpu')
}
`
const worker = `
import { reportProgress } from 'tabring/distributed'
import { runtimeOf } from 'tabring/runtime'
console.log('from the worker')
reportProgress({ step: 7, totalSteps: 9 })
await runtimeOf('reference')
postMessage('done')
`
const spawned = `
import * as dist from 'tabring/distributed'
import { env, initProcessGroup, serveRank } from 'tabring/distributed'
serveRank(async (rank: number, factor: number) => {
  await initProcessGroup()
  if (factor < 0 && rank === 1) throw new RangeError('factor of ' + factor)
  const sum = Float32Array.of(factor * (rank + 1))
  await dist.allReduce(sum)
  return env.RANK + ':' + rank + ':' + sum[0]
})
`

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
  await writeFile(join(folder, 'program.ts'), program)
  await writeFile(join(folder, 'worker.ts'), worker)
  await writeFile(join(folder, 'spawned.ts'), spawned)
  built = await buildProgram(join(folder, 'program.ts'), folder)
  served = await serve({ root: built.root, port: 0 })
})
afterAll(async () => {
  await browser.close()
  await served.close()
  await built.remove()
  await rm(folder, { recursive: true })
})
// One ends the browser.
beforeEach(async () => {
  if (!browser?.isConnected()) browser = await launchBrowser()
})

interface Report {
  failures: TabFailure[]
  said: string[]
  progress: unknown[]
  devices: unknown[]
}

/** Runs one rank a mode to their ends; `onUp` is called when all have begun, `onFailure` at each failure. */
async function run(
  modes: readonly string[],
  { onUp, stop }: { onUp?: () => void; stop?: AbortController } = {},
): Promise<Report> {
  const received: Report = { failures: [], said: [], progress: [], devices: [] }
  const up = new Set<number>()
  const control = stop ?? new AbortController()
  const ranks = modes.map((mode, rank) => ({
    rank,
    environment: { variables: { RANK: String(rank) }, args: [mode] },
  }))
  await runTabs(ranks, {
    browser: chromiumTabs(browser),
    url: served.localUrl,
    switches: {},
    stop: control.signal,
    onSay: ({ rank }, stream, text) => {
      received.said.push(`${rank} ${stream} ${text}`)
      if (text.startsWith('up ') && up.add(rank).size === modes.length) onUp?.()
    },
    onProgress: (rank, progress) => received.progress.push([rank, progress]),
    onDevice: (rank, text) => received.devices.push([rank, text]),
    onFailure: (failure) => {
      received.failures.push(failure)
      control.abort()
    },
  })
  expect(browser.contexts()).toEqual([])
  return received
}

test('an error that a rank throws is reported with its causes, and the ranks that wait are closed', async () => {
  const { failures } = await run(['wait', 'throw'])
  expect(failures).toHaveLength(1)
  const [{ rank, code, text }] = failures
  expect([rank, code]).toEqual([1, ''])
  expect(text).toMatch(/^Error: outer\n {4}at [^\n]+\n[\s\S]*cause: TypeError: inner\n {4}at /)
})

test('a wait for ranks whose programs have ended says so', async () => {
  const [{ text }] = (await run(['end', 'late-timeout', 'end'])).failures
  expect(text).toMatch(/waited\n[\s\S]*\nThe program of ranks 0 and 2 had ended well before, /)
})

test.each([
  ['text', '', /^thrown: a text$/],
  ['late', '', /^Error: from a timer\n {4}at /],
  ['unset', 'config.invalid', /^\w+: env: MASTER_ADDR is not set\./],
  ['reload', 'worker.dead', /^its page was replaced by http:/],
])('a program that ends badly: %s', async (mode, code, text) => {
  const { failures } = await run([mode])
  expect(failures).toEqual([{ rank: 0, code, text: expect.stringMatching(text) }])
})

test('a tab that crashes has failed', async () => {
  const onUp = () => {
    const page = browser.contexts()[1].pages()[0]
    page.goto('chrome://crash').catch(() => undefined)
  }
  const { failures } = await run(['wait', 'wait'], { onUp })
  expect(failures).toEqual([
    {
      rank: expect.any(Number),
      code: 'worker.dead',
      text: expect.stringContaining('its tab crashed'),
    },
  ])
})

test('a tab that somebody closes has failed', async () => {
  const onUp = () => void browser.contexts()[0].pages()[0].close()
  const { failures } = await run(['wait', 'wait'], { onUp })
  expect(failures).toEqual([
    {
      rank: expect.any(Number),
      code: 'worker.dead',
      text: expect.stringContaining('its tab was closed before the run ended'),
    },
  ])
})

test('a browser that exits has failed, once', async () => {
  const onUp = async () => {
    const session = await browser.newBrowserCDPSession()
    session.send('Browser.crash').catch(() => undefined)
  }
  const { failures } = await run(['wait', 'wait'], { onUp })
  expect(failures).toEqual([
    {
      rank: null,
      code: 'worker.dead',
      text: expect.stringContaining('browser: it crashed or was closed before the run ended'),
    },
  ])
})

test('stopped tabs are no failure', async () => {
  const stop = new AbortController()
  const { failures } = await run(['wait', 'wait'], { stop, onUp: () => stop.abort() })
  expect(failures).toEqual([])
  expect((await run(['wait'], { stop })).failures).toEqual([])
})

test('a rank that spawns workers, in a built program: results, and the stack of the first that fails', async () => {
  const { failures, said } = await run(['spawn'])
  expect(said).toContain("0 stdout sums [ '0:0:30', '0:1:30' ]")
  expect(failures).toMatchObject([{ rank: 0, code: 'rank.failed' }])
  expect(sourceLines(built.root, folder)(failures[0].text)).toMatch(
    /rank 1 failed with this error:\nRangeError: factor of -1\n {4}at spawned\.ts:5:\d+\n/,
  )
})

test('a run that ends well: every word on its stream, progress and devices from the page and from a worker', async () => {
  const { failures, said, progress, devices } = await run(['words', 'worker'])
  expect(failures).toEqual([])
  expect(said.filter((line) => line.startsWith('0'))).toEqual([
    '0 stdout up 0',
    '0 stdout info { a: 1 }',
    '0 stdout debug',
    '0 stderr error',
    '0 stderr Assertion failed: assertion',
    '0 stdout group',
  ])
  expect(said).toContain('1 stdout from the worker')
  expect(devices).toHaveLength(2)
  expect(devices).toContainEqual([0, expect.stringMatching(/^CPU in WebAssembly, \d+ threads?/)])
  expect(devices).toContainEqual([1, 'the plain references (slow)'])
  expect(progress).toHaveLength(2)
  expect(progress).toContainEqual([0, { step: 1, totalSteps: 2 }])
  expect(progress).toContainEqual([1, { step: 7, totalSteps: 9 }])
})

test('how many tabs auto, cpu and gpu are, where the only adapter is software', async () => {
  const count = (tabs: TabChoice, maxTabs?: number) =>
    countTabs(tabs, async () => chromiumTabs(browser), { maxTabs, visibleDevices: null })
  expect(await count('cpu')).toBe(availableParallelism())
  expect(await count('auto')).toBe(availableParallelism())
  expect(await count('auto', 1)).toBe(1)
  await expect(count('gpu')).rejects.toThrow('the browser found no GPU that it can use')
  expect(browser.contexts()).toEqual([])
})
