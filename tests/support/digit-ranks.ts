import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { SeenFolder } from './checkpoint-folders.ts'
import { trainRanks } from './train-ranks.ts'

/**
 * The built-in training on the CPU, on ranks of this process: batches of 15, which of 36 samples are an epoch of 3 steps, the last one short; the
 * last rank of 3 has no sample in it. `serveDigits` gives the samples.
 */
export const trainDigits = (size: number, input: TrainConfigInput, folder?: SeenFolder) =>
  trainRanks(
    size,
    { batchSize: 15, bucketCapMb: 0.04, hashEvery: 2, seed: 3, ...input },
    () => new ReferenceRuntime(),
    () => folder && { folder: async () => folder },
  )
