import { expect, test } from 'vitest'
import type { FileFolder } from '../../../src/data/file-store.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { startTask } from '../../support/task-ranks.ts'

async function train(folder: FileFolder) {
  const config = { demo: 'playground', steps: 4, seed: 4, checkpointEvery: 3 } as const
  const { ranks, close } = await startTask(
    2,
    config,
    () => new ReferenceRuntime(),
    () => ({
      checkpoints: { folder: async () => folder },
    }),
  )
  const ends = await Promise.allSettled(ranks.map(({ end }) => end))
  close()
  const received = ranks.map(({ events }) =>
    events.flatMap((event) =>
      event.event === 'unsaved' || event.event === 'checkpoint' ? [[event.event, event.step]] : [],
    ),
  )
  return { ends, received }
}

test('a run continues when a checkpoint cannot be written, and saves the next one', async () => {
  let writes = 0
  const folder = seenFolder((what) => {
    if (what.startsWith('write') && writes++ === 0) throw new Error('the disk is full')
  })
  const { ends, received } = await train(folder)
  for (const { status } of ends) expect(status).toBe('fulfilled')
  const expected = [
    ['unsaved', 3],
    ['checkpoint', 4],
  ]
  expect(received).toEqual([expected, expected])
})
