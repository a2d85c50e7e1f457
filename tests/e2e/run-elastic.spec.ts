import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { debuggedBrowser, debugTab } from '../support/debugged-browser.ts'
import { freePort } from '../support/free-port.ts'
import { type Run, says, startLauncher } from '../support/launcher-process.ts'

/** A user's own training under `tabring run --elastic`, whose tabs die while others train on. */

/**
 * Trains 12 steps and commits every third. All ranks have the same samples, so that the bits are those of any number of ranks that is a power of
 * two. Arguments: `wait=GROUP/RANK/STEP`, where a rank stops, to be killed; `throw=…`, where it throws; `hold=GROUP/STEP`, where a group
 * commits again and again until another follows it.
 */
const program = `
import {
  AdamW, args, compile, DistributedDataParallel, env, Linear, manualSeed, mseLoss, ReLU, runElastic, saveModel, Sequential, tensorType,
} from 'tabring'

const has = (what: string, step: number) => args.includes(what + '=' + env.RESTART_COUNT + '/' + env.RANK + '/' + step)
const numbers = (seed: number) => Float32Array.from({ length: 64 }, (_, i) => Math.sin(seed + i * 0.37))

await runElastic(async ({ restore, commit }) => {
  document.title = 'rank ' + env.RANK + ' of ' + env.WORLD_SIZE
  manualSeed(7)
  const net = new Sequential(new Linear(8, 32), new ReLU(), new Linear(32, 8))
  const model = new DistributedDataParallel(net)
  const optimizer = new AdamW(model.parameters(), { lr: 0.01 })
  const restored = await restore<{ step: number }>({ model, optimizer })
  let { step = 0 } = restored ?? {}
  console.log('group ' + env.RESTART_COUNT + ' of ' + env.WORLD_SIZE + ' from ' + step)
  const train = await compile(
    ({ x, y }) => {
      const loss = mseLoss(model.forward(x), y)
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([8, 8]), y: tensorType([8, 8]) },
  )
  while (step < 12) {
    await train.run({ x: numbers(step), y: numbers(step + 0.5) })
    step++
    if (has('wait', step)) {
      console.log('waits at ' + step)
      await new Promise(() => undefined)
    }
    if (has('throw', step)) throw new RangeError('no batch')
    if (step % 3 === 0) await commit({ model, optimizer, step })
    while (args.includes('hold=' + env.RESTART_COUNT + '/' + step)) await commit({ model, optimizer, step })
  }
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', await saveModel(net)))
  console.log('ends with ' + Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join(''))
})
`

let folder: string
let port: number
let browser: string
const children: ChildProcess[] = []
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-elastic-'))
  await writeFile(join(folder, 'train.ts'), program)
  await writeFile(
    join(folder, 'fixed.ts'),
    "import { env } from 'tabring'\nconsole.log(env.RANK)\n",
  )
  port = await freePort()
  browser = await debuggedBrowser(folder, port)
})
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})
afterAll(() => rm(folder, { recursive: true }))

function start(...argv: readonly string[]): Run {
  const run = startLauncher(folder, 'run', argv, { TABRING_BROWSER: browser })
  children.push(run.child)
  return run
}

const linesOf = ({ told }: Run, form: RegExp) =>
  [...told.stdout.matchAll(form)].map(([, rank, words]) => `${rank} ${words}`).sort()
const endsOf = (run: Run) => linesOf(run, /^\[(\d)\]: ends with (.*)$/gm)
const groupsOf = (run: Run) => linesOf(run, /^\[(\d)\]: (group .*)$/gm)

test('a killed tab is opened again and joins the rank that trained on, to the bits of a run without a break', async () => {
  const whole = start('--elastic=2:2', 'train.ts')
  expect(await whole.ended, whole.told.stderr).toBe(0)
  expect(groupsOf(whole)).toEqual(['0 group 0 of 2 from 0', '1 group 0 of 2 from 0'])
  const wanted = endsOf(whole)
  expect(wanted).toHaveLength(2)

  const run = start('--elastic=1:2', 'train.ts', 'wait=0/1/4', 'hold=1/9')
  await says(run, '[1]: waits at 4')
  ;(await debugTab(port, 'rank 1 of 2')).crash()
  expect(await run.ended, run.told.stderr).toBe(0)
  expect(groupsOf(run)).toEqual([
    '0 group 0 of 2 from 0',
    '0 group 1 of 1 from 3',
    '0 group 2 of 2 from 9',
    '1 group 0 of 2 from 0',
    '1 group 2 of 2 from 9',
  ])
  expect(run.told.stderr).toMatch(
    /rank 1: its tab crashed.*\n.*restart 1 of 3: its tab is opened again\n.*continuing with 1 rank\n.*continuing with 2 ranks\n/,
  )
  expect(endsOf(run)).toEqual(wanted)
})

test('a rank that throws is opened again while MIN ranks wait for it, until no restart is left', async () => {
  const run = start(
    ...['--elastic=2:2', '--max-restarts=1', 'train.ts'],
    ...['throw=0/0/4', 'throw=1/1/8'],
  )
  expect(await run.ended, run.told.stderr).toBe(1)
  expect(groupsOf(run)).toEqual([
    '0 group 0 of 2 from 0',
    // Rank 1 had the state: it is first now.
    '0 group 1 of 2 from 3',
    '1 group 0 of 2 from 0',
    '1 group 1 of 2 from 3',
  ])
  const { stderr } = run.told
  expect(stderr).toMatch(/restart 1 of 1: its tab is opened again/)
  expect(stderr).toContain('--elastic: 1 of at least 2 ranks left; waiting for more')
  expect(stderr).toMatch(/rank 1 failed first.*:\nRangeError: no batch/)
  expect(stderr).toContain(
    '--elastic: 1 of at least 2 ranks left, and no restart. Raise --max-restarts, or lower MIN.',
  )
  expect(endsOf(run)).toEqual([])
})

test('a program without runElastic ends with an error that names it', async () => {
  const run = start('--elastic=1:2', 'fixed.ts')
  expect(await run.ended).toBe(1)
  expect(run.told.stderr).toContain(
    'env: RANK is not set before the first group of an elastic run. Read it in the function that you pass to runElastic',
  )
})
