import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { formatHash, hashWords } from '../../kernels/hash/hash-words.ts'
import { TensorHashes } from './tensor-hashes.ts'

/**
 * One 64-bit hash of the bits of `parameters`, in their order, as 16 hexadecimal digits: equal for equal parameters, whatever buckets they
 * travelled in and however many ranks trained them.
 *
 * `runtime`: where they are; default: the default device's.
 * cost: compiles a program of one hash or two for each parameter, which is why only a run's end asks for it; 8 bytes each come back.
 */
export async function paramDigest(
  parameters: readonly Parameter[],
  runtime?: AnyRuntime,
): Promise<string> {
  const hashes = await TensorHashes.create(runtime, () => parameters)
  try {
    return formatHash(hashWords(await hashes.words()))
  } finally {
    hashes.destroy()
  }
}
