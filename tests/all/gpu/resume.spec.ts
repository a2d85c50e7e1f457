import { test } from 'vitest'
import { openGpu } from '../../../src/gpu/device.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { checkResume } from '../../support/resume-run.ts'

test.each([
  ['adamw', 0],
  ['sgd', 2],
] as const)(
  '%s, %d workers: 10 steps are 7, a file in the middle of an epoch, another device and 3 more, bit for bit',
  (name, numWorkers) => checkResume(name, async () => new Runtime(await openGpu()), numWorkers),
)
