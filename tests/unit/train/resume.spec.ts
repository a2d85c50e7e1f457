import { expect, test } from 'vitest'
import { packCheckpoint, unpackCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { checkResume, makeRun } from '../../support/resume-run.ts'

test.each(['adamw', 'sgd'] as const)(
  '%s on the CPU: 10 steps are 7, a file in the middle of an epoch, another runtime and 3 more, bit for bit',
  (name) => checkResume(name, async () => new ReferenceRuntime()),
)

test('other parts than those of the file are refused', async () => {
  const { parts } = await makeRun(new ReferenceRuntime(), 'sgd')
  const file = await packCheckpoint({ model: parts.model, step: 1 })
  await expect(unpackCheckpoint(file, parts)).rejects.toThrow(
    /expected the parts model, got loader, /,
  )
})
