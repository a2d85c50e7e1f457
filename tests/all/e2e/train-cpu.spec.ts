import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { findBrowser } from '../../../node/chromium.ts'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { smallFolder } from '../../support/idx-files.ts'
import { readWithSpeedscope } from '../../support/speedscope.ts'
import { useTrainFolder } from '../../support/train-folder.ts'

/** What `npm run train` does without the adapter, so that it can be tested beside what needs it. */

const folder = useTrainFolder()

test.each(['mlp', 'cnn'])(
  '--device cpu trains %s on a small folder, the cores divided by the ranks',
  async (model) => {
    const data = join(folder.path, 'data')
    await mkdir(data)
    for (const [name, bytes] of Object.entries(smallFolder()))
      await writeFile(join(data, name), bytes)
    const flags = ['--nproc-per-node', '2', '--model', model, '--data', data, '--steps', '2']
    const { child, received } = folder.start({}, '--device', 'cpu', '--batch-size', '4', ...flags)
    const [code] = await once(child, 'close')
    expect(code, received.stderr).toBe(0)
    expect(received.stdout).toMatch(/step 2\/2 {2}loss \d\.\d{4} /)
    const threads = Math.max(1, Math.floor(availableParallelism() / 2))
    const winners = received.stderr.match(/tab \d of 2: tabring switches: device=cpu \(launcher\)/g)
    expect(winners).toHaveLength(2)
    const ranks = received.stderr.match(/rank \d: CPU in WebAssembly, \d+ threads?/g)
    expect(ranks?.map((line) => Number(/\d+(?= thread)/.exec(line)))).toEqual([threads, threads])
    expect(received.stderr).toContain('computing on the CPU in WebAssembly')
  },
)

test('four tabs are linked all to all, measure how collectives travel, keep that in the record, and end with equal bits', async () => {
  const out = join(folder.path, 'weights.safetensors')
  const flags = ['--device', 'cpu', '--demo', 'playground', '--batch-size', '12', '--steps', '4']
  const { child, received } = folder.start(
    {},
    ...['--json', '--nproc-per-node', '4', '--out', out, ...flags],
  )
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  const done = JSON.parse(received.stdout.trim().split('\n').at(-1)!)
  expect(done).toMatchObject({ event: 'done', steps: 4, worldSize: 4 })
  expect(done.linksPerRank.map((links: string[]) => links.length)).toEqual([3, 3, 3, 3])
  expect(new Set(done.paramHashes).size).toBe(1)
  const { metadata } = readSafetensors(new Uint8Array(await readFile(out)))
  const { choice, bytesPerMs } = JSON.parse(metadata['tabring.record']!).links
  expect(bytesPerMs).toBeGreaterThan(0)
  // The sizes that are measured; what holds in a ring, where only the rate is, is 8 KiB.
  const measured = [0, 4, 16, 64, 256, 1024].map((kibi) => 1024 * kibi)
  expect(measured).toContain(choice.oneShotMaxBytes)
  expect(measured).toContain(choice.directMaxBytes)
}, 120_000)

test('a malformed trace does not pass the reader', async () => {
  const file = join(folder.path, 'spans.json')
  const tell = async (...traceEvents: object[]) => {
    await writeFile(file, JSON.stringify({ traceEvents }))
    return (await readWithSpeedscope(file)).complaints.join('\n')
  }
  expect(await tell({ name: 'a' })).toContain('Unrecognized format')
  const one = { name: 'one', ph: 'X', pid: 0, tid: 1, ts: 0, dur: 10, args: {} }
  expect(await tell(one, { ...one, name: 'other', ts: 5 })).toContain('Tried to end "one')
  expect(await tell(one, { ...one, name: 'other', ts: 10 })).toBe('')
})

test('a Chromium that crashes at its start is started once more', async () => {
  const browser = join(folder.path, 'chromium')
  const starts = join(folder.path, 'starts')
  const crashesFirst = `echo start >> "${starts}"\n[ "$(wc -l < "${starts}")" = 1 ] && exit 139\n`
  const script = `#!/bin/sh\n${crashesFirst}exec "${findBrowser()}" "$@"\n`
  await writeFile(browser, script, { mode: 0o755 })
  const flags = ['--device', 'cpu', '--demo', 'playground', '--steps', '1']
  const { child, received } = folder.start({ TABRING_BROWSER: browser }, ...flags)
  expect((await once(child, 'close'))[0], received.stderr).toBe(0)
  expect(await readFile(starts, 'utf8')).toBe('start\nstart\n')
})
