import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { browserFlag, crash, start, write } from '../../support/debugged-launcher.ts'
import { endsOf, groupsOf, useElasticProgram } from '../../support/elastic-program.ts'
import { family } from '../../support/launcher-folder.ts'
import { says } from '../../support/launcher-process.ts'

/** A user's own training under `tabring run --elastic`, whose tabs die while others train on. */

useElasticProgram()

test('a killed tab is opened again and joins the rank that trained on, to the bits of a run without a break', async () => {
  const whole = start('--elastic=2:2', 'train.ts')
  expect(await whole.ended, whole.received.stderr).toBe(0)
  expect(groupsOf(whole)).toEqual(['0 group 0 of 2 from 0', '1 group 0 of 2 from 0'])
  const wanted = endsOf(whole)
  expect(wanted).toHaveLength(2)

  const run = start('--elastic=1:2', 'train.ts', 'wait=0/1/4', 'hold=9/2')
  await says(run, '[1]: waits at 4')
  await crash('rank 1 of 2')
  expect(await run.ended, run.received.stderr).toBe(0)
  expect(groupsOf(run)).toEqual([
    '0 group 0 of 2 from 0',
    '0 group 1 of 1 from 3',
    '0 group 2 of 2 from 9',
    '1 group 0 of 2 from 0',
    '1 group 2 of 2 from 9',
  ])
  expect(run.received.stderr).toMatch(
    /rank 1: its tab crashed.*\n.*restart 1 of 3: its tab is opened again\n.*continuing with 1 rank\n[\s\S]*continuing with 2 ranks\n/,
  )
  expect(endsOf(run)).toEqual(wanted)
})

test('rank 0 and another that are killed at once are opened again and join the third', async () => {
  const run = start('--elastic=1:3', 'train.ts', 'wait=0/0/4', 'wait=0/1/4', 'hold=6/3')
  await says(run, '[0]: waits at 4')
  await says(run, '[1]: waits at 4')
  await Promise.all([crash('rank 0 of 3'), crash('rank 1 of 3')])
  expect(await run.ended, run.received.stderr).toBe(0)
  // The others come together or one after the other.
  expect(groupsOf(run).filter((line) => / of 3 from 6$/.test(line))).toHaveLength(3)
  const ends = endsOf(run).map((line) => line.slice(2))
  expect(ends).toHaveLength(3)
  expect(new Set(ends).size).toBe(1)
})

test('a step under way that nobody awaits is no failure when the group ends', async () => {
  const run = start('--elastic=1:2', 'train.ts', 'loose', 'wait=0/1/4')
  await says(run, '[1]: waits at 4')
  await crash('rank 1 of 2')
  expect(await run.ended, run.received.stderr).toBe(0)
  expect(groupsOf(run)).toContain('0 group 1 of 1 from 3')
  expect(run.received.stderr).not.toMatch(/restart 2/)
})

test('a browser that is killed restarts all ranks, and counts for --max-restarts', async () => {
  const run = start('--elastic=1:2', '--max-restarts=1', 'train.ts', 'wait=0/1/4')
  await says(run, '[1]: waits at 4')
  const all = await family(run.child.pid!)
  const lines = await Promise.all(
    all.map(async (id) => ({
      id,
      line: await readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => ''),
    })),
  )
  const found = lines.filter(
    ({ line }) => line.includes(browserFlag()) && !line.includes('--type='),
  )
  for (const { id } of found) process.kill(id, 'SIGKILL')
  expect(await run.ended, run.received.stderr).toBe(0)
  expect(run.received.stderr).toContain('restart 1 of 1')
  expect(groupsOf(run)).toContain('1 group 1 of 2 from 0')
  expect(endsOf(run)).toHaveLength(2)
})

test('Ctrl-C ends an elastic run and every process that it started', async () => {
  const run = start('--elastic=1:2', 'train.ts', 'wait=0/1/4')
  await says(run, '[1]: waits at 4')
  const all = await family(run.child.pid!)
  run.child.kill('SIGINT')
  expect(await run.ended).toBe(130)
  expect((await Promise.all(all.map(family))).flat()).toEqual([])
})

test('a rank that throws is opened again while MIN ranks wait for it, until no restart is left', async () => {
  const run = start(
    ...['--elastic=2:2', '--max-restarts=1', 'train.ts'],
    ...['throw=0/0/4', 'throw=1/1/8'],
  )
  expect(await run.ended, run.received.stderr).toBe(1)
  expect(groupsOf(run)).toEqual([
    '0 group 0 of 2 from 0',
    // Rank 1 had the state: it is first now.
    '0 group 1 of 2 from 3',
    '1 group 0 of 2 from 0',
    '1 group 1 of 2 from 3',
  ])
  const { stderr } = run.received
  expect(stderr).toMatch(/restart 1 of 1: its tab is opened again/)
  expect(stderr).toContain(
    '--elastic: 1 of at least 2 ranks left; waiting for another, at most 600 s',
  )
  expect(stderr).toMatch(/\[0\]: RangeError: no batch\n\[0\]: {5}at .*train\.ts:\d+/)
  expect(stderr).toContain(
    '--elastic: 1 of at least 2 ranks left, and no restart. Raise --max-restarts, or lower MIN.',
  )
  expect(endsOf(run)).toEqual([])
})

test('a program without runElastic ends with an error that names it', async () => {
  await write('fixed.ts', "import { env } from 'tabring/distributed'\nconsole.log(env.RANK)\n")
  const run = start('--elastic=1:2', 'fixed.ts')
  expect(await run.ended).toBe(1)
  expect(run.received.stderr).toContain(
    'env: RANK is not set before the first group of an elastic run. Read it in the function that you pass to runElastic',
  )
})
