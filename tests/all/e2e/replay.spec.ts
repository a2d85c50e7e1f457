import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { load, type SavedState, save } from '../../../src/data/saved-tree.ts'
import type { StateDict } from '../../../src/nn/module.ts'
import { repository } from '../../support/repository.ts'
import { useTrainFolder } from '../../support/train-folder.ts'

// A run with exact in two tabs, computed again in one.

const folder = useTrainFolder()

/** What `npm run replay` prints, and its exit code. */
async function replay(path: string): Promise<{ text: string; code: number }> {
  const command = ['--import', 'tsx', 'scripts/replay.ts', path, '--adapter', 'software']
  const run = promisify(execFile)(process.execPath, command, { cwd: repository })
  return run.then(
    ({ stdout }) => ({ text: stdout, code: 0 }),
    ({ stdout, stderr, code }) => ({ text: stdout || stderr, code }),
  )
}

test('replay computes the same hashes in one tab, and names the first step that differs', async () => {
  const path = join(folder.path, 'run.json')
  const { child, received } = folder.start(
    {},
    ...['--exact', '--adapter', 'software', '--nproc-per-node', '2', '--steps', '12'],
    ...['--run-log', path],
  )
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  const text = await readFile(path, 'utf8')
  const { end, groups, proof } = JSON.parse(text)
  const id = expect.any(String)
  const device = expect.stringContaining('swiftshader')
  const members = [
    { id, name: 'host', samples: 32, device },
    { id, name: 'guest', samples: 32, device },
  ]
  expect(groups).toEqual([{ step: 0, worldSize: 2, members }])
  const hash = expect.stringMatching(/^\w{16}$/)
  expect(proof).toEqual({ samples: hash, parameters: hash, results: hash })
  expect(await replay(path)).toEqual({
    text: `replay: the same hash before each of 12 steps, and the end: ${end.paramHash}\n`,
    code: 0,
  })
  const damaged = join(folder.path, 'damaged.json')
  await writeFile(damaged, text.replace(/\[7,"..../, '[7,"0000'))
  const found = await replay(damaged)
  expect(found.text).toMatch(/^replay: the state after step 7 hashes to \w{16} here, and to 0000/)
  expect(found.code).toBe(1)
}, 180_000)

test('a run that Ctrl-C stopped has left its log, and replay computes it as far as that goes', async () => {
  const path = join(folder.path, 'run.json')
  const { child, received, ended } = folder.start(
    {},
    ...['--exact', '--adapter', 'software', '--nproc-per-node', '2', '--steps', '100000'],
    ...['--json', '--run-log', path],
  )
  while (!received.stdout.includes('"event":"step","step":5,')) await once(child.stdout, 'data')
  child.kill('SIGINT')
  expect(await ended).toBe(130)
  const { states, end } = JSON.parse(await readFile(path, 'utf8'))
  expect(end).toBeNull()
  const steps: number = states.length
  expect(steps).toBeGreaterThanOrEqual(5)
  expect(received.stderr).toContain(`train: the log of the run up to step ${steps} is in ${path}\n`)
  expect(await readdir(folder.path)).toEqual(['run.json'])
  expect(await replay(path)).toEqual({
    text: `replay: the same hash before each of ${steps} steps\nreplay: the log is of a run that did not reach its end: it stopped after step ${steps}\n`,
    code: 0,
  })
}, 180_000)

test('a run that failed has left its log up to the step before', async () => {
  const path = join(folder.path, 'run.json')
  const { received, ended } = folder.start(
    {},
    ...['--exact', '--adapter', 'software', '--optimizer', 'sgd', '--lr', '1e30'],
    ...['--nproc-per-node', '1', '--steps', '12', '--run-log', path],
  )
  expect(await ended).toBe(1)
  expect(received.stderr).toContain('step 2: expected finite losses')
  expect(JSON.parse(await readFile(path, 'utf8'))).toMatchObject({
    states: [[0, expect.stringMatching(/^\w{16}$/)]],
    end: null,
  })
}, 180_000)

test('replay computes the log in a checkpoint up to its step, and compares its weights', async () => {
  const runs = join(folder.path, 'runs')
  const { child, received } = folder.start(
    {},
    ...['--exact', '--adapter', 'software', '--nproc-per-node', '2', '--steps', '8'],
    ...['--checkpoint-dir', runs, '--checkpoint-every', '5'],
  )
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  const path = join(runs, 'step-5.safetensors')
  expect(await replay(path)).toEqual({
    text: expect.stringMatching(
      /^replay: the same hash before each of 5 steps, and the end: \w{16}\n$/,
    ),
    code: 0,
  })
  const file = await readFile(path)
  const damaged = join(runs, 'damaged.safetensors')
  const { model, ...rest } = load(new Uint8Array(file)) as { model: StateDict } & SavedState
  const last = Object.keys(model).at(-1)!
  model[last].data[0] += 1
  await writeFile(damaged, save({ model: { ...model }, ...rest }))
  const found = await replay(damaged)
  expect(found.text).toContain(`"${last}" after step 5 has other bits in the checkpoint`)
  expect(found.code).toBe(1)
}, 180_000)

test('replay refuses what is no log, and what is not there', async () => {
  expect(await replay('package.json')).toEqual({
    text: 'replay: package.json: it is no log of a run with exact, and no checkpoint of one. Use a file of --run-log.\n',
    code: 1,
  })
  const empty = join(folder.path, 'empty.json')
  const log = { config: { exact: true }, states: [], groups: [], deals: [], end: null }
  await writeFile(empty, JSON.stringify({ format: 'tabring-run-log-1', ...log }))
  expect((await replay(empty)).text).toContain('that run stopped within its first step')
  const missing = join(folder.path, 'none.json')
  expect((await replay(missing)).text).toContain('cannot read this file')
}, 60_000)
