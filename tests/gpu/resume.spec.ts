import { test } from 'vitest'
import { openGpu } from '../../src/gpu/device.ts'
import { Runtime } from '../../src/graph/runtime.ts'
import { checkResume } from '../support/resume-run.ts'

test.each(['adamw', 'sgd'] as const)(
  '%s: 10 steps are 5, a file, another device and 5 more, bit for bit',
  (name) => checkResume(name, async () => new Runtime(await openGpu())),
)
