import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { debuggedBrowser, debugTab } from '../../support/debugged-browser.ts'
import { freePort } from '../../support/free-port.ts'
import { drawnSplits, idxFolder } from '../../support/idx-files.ts'
import { startTrain } from '../../support/program-process.ts'

/** `npm run train` with checkpoints, as a process: what it keeps in the folder, and what it continues from. */

let folder: string
const children: ChildProcess[] = []
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
  await mkdir(join(folder, 'data'))
  for (const [name, bytes] of Object.entries(idxFolder(drawnSplits({ train: 256, test: 50 }))))
    await writeFile(join(folder, 'data', name), bytes)
})
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})
afterAll(() => rm(folder, { recursive: true }))

interface Line {
  readonly event: string
  readonly step: number
  readonly loss: number
  readonly differences?: string[]
  readonly paramHashes?: string[]
  readonly testAccuracy?: number
}

// Buckets of one size: else each command measures what its links take, which decides the last bits.
function start(argv: readonly string[], environment = {}) {
  const own = [
    '--json',
    '--adapter',
    'software',
    '--data',
    join(folder, 'data'),
    '--seed',
    '3',
    '--bucket-cap-mb',
    '1',
  ]
  const started = startTrain([...own, ...argv], environment)
  children.push(started.child)
  return started
}

/** Resolves when the process has printed `text`. */
const prints = ({ child, received }: ReturnType<typeof start>, text: string) =>
  new Promise<void>((resolve, reject) => {
    child.stdout.on('data', () => {
      if (received.stdout.includes(text)) resolve()
    })
    child.once('close', () => reject(new Error(received.stderr)))
  })

const train = (...argv: string[]): Promise<Line[]> => ended(start(argv))

async function ended({ child, received }: ReturnType<typeof start>): Promise<Line[]> {
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  return received.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
}

const lossesOf = (lines: Line[]) =>
  lines.filter(({ event }) => event === 'step').map(({ loss }) => loss)

test('4 epochs of two tabs equal 2 and 2 more from a folder, bit for bit; three tabs continue too and print what differs', async () => {
  const runs = join(folder, 'runs')
  const two = ['--nproc-per-node', '2']
  const kept = ['--checkpoint-dir', runs, '--keep-last', '1']
  const whole = await train(...two, '--epochs', '4')
  const first = await train(...two, '--epochs', '2', ...kept, '--checkpoint-every', '3')
  const files = (await readdir(runs)).sort()
  // Nothing half written: the manifest, the latest, and the best one if that is another.
  expect(files[0]).toBe('checkpoints.json')
  expect(files.at(-1)).toBe('step-8.safetensors')
  expect(files.length).toBeLessThanOrEqual(3)

  const file = join(runs, 'step-8.safetensors')
  const three = await train('--nproc-per-node', '3', '--epochs', '3', '--resume', file)
  const [received] = three.filter(({ event }) => event === 'resumed')
  expect(received.differences?.[0]).toBe('ranks 2, now 3')
  expect(Math.abs(lossesOf(three)[0] / lossesOf(whole)[8] - 1)).toBeLessThan(1e-5)

  const second = await train(...two, '--epochs', '4', ...kept, '--resume', 'latest')
  expect(second.find(({ event }) => event === 'resumed')).toMatchObject({
    step: 8,
    epoch: 2,
    differences: [],
  })
  expect([...lossesOf(first), ...lossesOf(second)]).toEqual(lossesOf(whole))
  const [done, wanted] = [second, whole].map((lines) => lines.at(-1))
  expect(done).toMatchObject({ event: 'done', steps: 16 })
  expect(done?.paramHashes).toEqual(wanted?.paramHashes)
  expect(done?.testAccuracy).toBe(wanted?.testAccuracy)

  // The same line once more, as of a command that was killed behind the very last save: nothing is left to train.
  const out = join(folder, 'weights.safetensors')
  const third = await train(...two, '--epochs', '4', ...kept, '--resume', 'latest', '--out', out)
  expect(third.map(({ event }) => event)).toEqual(['devices', 'resumed', 'done'])
  expect(third[1]).toMatchObject({ step: 16, stepsLeft: 0 })
  expect(third[2]).toMatchObject({ steps: 16, testAccuracy: done?.testAccuracy })
  expect(third[2].paramHashes).toEqual(done?.paramHashes)
  const { tensors } = readSafetensors(new Uint8Array(await readFile(out)))
  expect([...tensors.keys()].sort()).toEqual(['0.bias', '0.weight', '2.bias', '2.weight'])
}, 240_000)

test('a checkpoint of two stages continues on two replicas, and one of two replicas in two stages', async () => {
  const two = ['--nproc-per-node', '2']
  const whole = lossesOf(await train(...two, '--epochs', '4'))
  for (const [first, second] of [
    ['pp=2', 'dp'],
    ['dp', 'pp=2'],
  ]) {
    const runs = join(folder, `from-${first}`)
    await train(...two, '--parallel', first, '--epochs', '2', '--checkpoint-dir', runs)
    const file = join(runs, 'step-8.safetensors')
    const later = await train(...two, '--parallel', second, '--epochs', '4', '--resume', file)
    expect(later[1]).toMatchObject({ event: 'resumed', step: 8, epoch: 2 })
    const losses = lossesOf(later)
    expect(losses).toHaveLength(8)
    for (const [i, loss] of losses.entries())
      expect(Math.abs(loss / whole[8 + i] - 1)).toBeLessThan(1e-4)
  }
}, 240_000)

// As on a disk that is full by then.
test('a run whose last checkpoint cannot be written keeps its weights, and fails once', async () => {
  const [runs, out] = ['gone', 'kept.safetensors'].map((name) => join(folder, name))
  const elastic = ['--elastic', '1:1', '--epochs', '1', '--batch-size', '8']
  const run = start([...elastic, '--checkpoint-dir', runs, '--out', out])
  await prints(run, '"step"')
  await rm(runs, { recursive: true })
  await writeFile(runs, 'no folder')
  const [code] = await once(run.child, 'close')
  expect(code).toBe(1)
  expect(run.received.stdout.match(/"event":"done"/g)).toHaveLength(1)
  expect(run.received.stdout).toContain('"event":"unsaved","step":32')
  expect(run.received.stderr).toMatch(
    /train: --checkpoint-dir: the run has ended, but its last checkpoint was not written: \S/,
  )
  const { tensors } = readSafetensors(new Uint8Array(await readFile(out)))
  expect(tensors.size).toBe(4)
}, 240_000)

test('a run that was killed continues from its latest checkpoint, to the same bits', async () => {
  const runs = join(folder, 'killed')
  const six = ['--nproc-per-node', '2', '--epochs', '6']
  const settings = [...six, '--checkpoint-dir', runs]
  const killed = start([...settings, '--checkpoint-every', '2'])
  await prints(killed, '"name":"step-6.safetensors"')
  killed.child.kill('SIGINT')
  await once(killed.child, 'close')
  expect(killed.received.stderr).toContain(
    `interrupted; the checkpoints are in ${runs}; continue with --resume latest`,
  )
  const second = await train(...settings, '--resume', 'latest')
  const whole = await train(...six)
  const [resumed] = second.filter(({ event }) => event === 'resumed')
  expect(resumed.step).toBeGreaterThanOrEqual(6)
  expect(lossesOf(second)).toEqual(lossesOf(whole).slice(resumed.step))
  expect(second.at(-1)?.paramHashes).toEqual(whole.at(-1)?.paramHashes)

  // With --max-restarts the command does that without a person when a tab is killed.
  const port = await freePort()
  const browser = { TABRING_BROWSER: await debuggedBrowser(folder, port) }
  const kept = ['--checkpoint-dir', join(folder, 'crashed'), '--checkpoint-every', '2']
  const crashed = start([...six, ...kept, '--max-restarts', '1', '--no-elastic'], browser)
  await prints(crashed, '"name":"step-6.safetensors"')
  ;(await debugTab(port, 'Tabring rank')).crash()
  const lines = await ended(crashed)
  expect(crashed.received.stderr).toMatch(
    /train: rank \d: [^\n]*crash[^\n]*\ntrain: restart 1 of 1\n/,
  )
  const at = lines.findIndex(({ event }) => event === 'resumed')
  expect(lines[at].step).toBeGreaterThanOrEqual(6)
  expect(lossesOf(lines.slice(at))).toEqual(lossesOf(whole).slice(lines[at].step))
  expect(lines.at(-1)?.paramHashes).toEqual(whole.at(-1)?.paramHashes)
}, 240_000)
