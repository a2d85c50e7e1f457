import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { formatHash, hashWords } from '../../kernels/hash/hash-words.ts'
import { TensorHashes } from './tensor-hashes.ts'

/**
 * Returns a 64-bit hash of the bits of `parameters`, in order, as 16 hexadecimal digits. Equal parameters have equal hashes, whatever the
 * bucket size and the number of ranks that trained them.
 *
 * `runtime`: where the parameters are. Default: that of the default device.
 * cost: compiles a program of one or two hashes per parameter, so call it only at the end of a run; reads back 8 bytes per parameter.
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
