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

test('close leaves the log of a run that reached its end as it was written', async () => {
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
  const out = await open({ event: 'phase', phase: 'compile', rank: 0 }, step(1, 1))
  await out.close(note)
  expect(await readFile(path, 'utf8')).toBe('old')
  expect(notes).toEqual([])
  expect(await readdir(folder)).toEqual(['run.json'])
})

test('a run that began again from a checkpoint keeps what was logged before', async () => {
  const out = await open(step(1), step(2), step(3), step(2))
  await out.close(note)
  expect((await written())!.states.map(([after]) => after)).toEqual([0, 1, 2, 1])
  expect(notes[0]).toContain('up to step 2 ')
})
