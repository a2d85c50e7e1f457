import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { RunLogOut } from '../../../node/train/run-log-out.ts'
import type { TabEvent } from '../../../node/train/tab-group.ts'
import { readRunLog } from '../../../src/trainer/watch/run-log.ts'

let folder: string
let path: string
let notes: string[]
const note = (line: string) => void notes.push(line)
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
  path = join(folder, 'run.json')
  notes = []
})
afterEach(() => rm(folder, { recursive: true }))

const step = (step: number, rank = 0) =>
  ({ event: 'step', step, stateHash: `h${step - 1}`, rank }) as TabEvent

/** The log of a run with these events. */
async function open(...events: readonly TabEvent[]): Promise<RunLogOut> {
  const out = await RunLogOut.open(path, { demo: 'digits', exact: true })
  for (const event of events) out.add(event)
  return out
}
const written = async () => readRunLog(await readFile(path, 'utf8'))

test('close writes the log of a run that did not reach its end, and says up to which step', async () => {
  await writeFile(path, 'old')
  const out = await open(step(1), step(1, 1), step(2), step(2, 1))
  await out.close(note)
  expect(await written()).toMatchObject({
    config: { demo: 'digits', exact: true },
    states: [
      [0, 'h0'],
      [1, 'h1'],
    ],
    end: null,
  })
  expect(notes).toEqual([`the log of the run up to step 2 is in ${path}`])
  expect(await readdir(folder)).toEqual(['run.json'])
})

test('close leaves the log of a finished run unchanged', async () => {
  const out = await open(step(1))
  const end = { step: 1, paramHash: 'ab' }
  await out.write(end)
  await out.close(note)
  expect((await written())!.end).toEqual(end)
  expect(notes).toEqual([])
  expect(await readdir(folder)).toEqual(['run.json'])
})

test('close leaves an existing file as it is where no step of the run has ended', async () => {
  await writeFile(path, 'old')
  const out = await open({ event: 'phase', phase: 'compile', rank: 0 })
  await out.close(note)
  expect(await readFile(path, 'utf8')).toBe('old')
  expect(notes).toEqual([])
  expect(await readdir(folder)).toEqual(['run.json'])
})

test('a run that began again from a checkpoint keeps what was logged before', async () => {
  const out = await open(step(1), step(2), step(3))
  out.endAttempt()
  out.add(step(2))
  await out.close(note)
  expect((await written())!.states.map(([after]) => after)).toEqual([0, 1, 2, 1])
  expect(notes[0]).toContain('up to step 2 ')
})

test('steps that a lost rank 0 did not report come from the other ranks, each once and in order', async () => {
  // Rank 2 has joined after step 3, and is heard before the others.
  const out = await open(step(1), step(1, 1), step(5, 2), step(2, 1), step(3, 1), step(4, 1))
  // Now rank 1 is rank 0.
  for (const event of [step(2, 2), step(5), step(6, 1), step(6)]) out.add(event)
  await out.close(note)
  const { states, unlike } = (await written())!
  expect(states).toEqual([0, 1, 2, 3, 4, 5].map((after) => [after, `h${after}`]))
  expect(unlike).toEqual([])
})

test('the first hash counts when ranks report different ones of a step, and the log notes it', async () => {
  const out = await open(step(1), step(2))
  out.add({ ...step(2, 1), stateHash: 'other' } as TabEvent)
  await out.close(note)
  const { states, unlike } = (await written())!
  expect(states).toEqual([
    [0, 'h0'],
    [1, 'h1'],
  ])
  const text = 'rank 1 told the hash other of the state after step 1, and another rank h1 before it'
  expect(unlike).toEqual([{ step: 1, text, isLasting: false }])
})
