import { type AnyRuntime, checkRuntime } from '../../graph/memory/runtime.ts'
import { Parameter } from '../../graph/trace/parameter.ts'
import { formatHash, hashWords } from '../../kernels/hash/hash-words.ts'
import { checkList } from '../../util/options.ts'
import { TensorHashes } from './tensor-hashes.ts'

const isParameter = (one: unknown): boolean => one instanceof Parameter

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
  if (runtime) checkRuntime('paramDigest', runtime)
  checkList('paramDigest', 'parameters', parameters, isParameter, 'parameters')
  const hashes = await TensorHashes.create(runtime, () => parameters)
  try {
    return formatHash(hashWords(await hashes.words()))
  } finally {
    hashes.destroy()
  }
}
