import { compile } from '../graph/compile.ts'
import type { Parameter } from '../graph/parameter.ts'
import type { AnyRuntime } from '../graph/runtime.ts'
import { emit } from '../graph/tensor.ts'
import { formatHash, hashWords } from '../kernels/hash/hash-words.ts'
import { paramHash } from '../kernels/hash/param-hash.ts'

/**
 * One 64-bit hash of the bits of `parameters`, in their order, as 16 hexadecimal digits: equal for equal parameters, whatever buckets they
 * travelled in and however many ranks trained them.
 *
 * cost: compiles a program of one hash or two for each parameter, which is why only a run's end asks for it; 8 bytes each come back.
 */
export async function paramDigest(
  runtime: AnyRuntime,
  parameters: readonly Parameter[],
): Promise<string> {
  const program = await compile(
    () =>
      Object.fromEntries(
        parameters.map((parameter, i) => [
          `${i}`,
          emit(paramHash, [parameter], { length: parameter.count }),
        ]),
      ),
    {},
    { runtime },
  )
  try {
    const hashes = await program.run({})
    const words = parameters.flatMap((_, i) => [...hashes[`${i}`]])
    return formatHash(hashWords(Uint32Array.from(words)))
  } finally {
    program.destroy()
  }
}
