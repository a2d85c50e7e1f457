import { loadPart } from '../../util/load-part.ts'
import { type AnyRuntime, Runtime } from '../memory/runtime.ts'
import type { Prepared } from '../plan/prepare.ts'
import { namingLargest } from '../run/out-of-memory.ts'
import { GpuProgram } from '../run/program.ts'
import type { ReferenceProgram } from '../run/reference-program.ts'

/** Makes the program of a prepared step on its device. errors: `gpu.compile`; `gpu.limit`, with the largest tensors. */
export async function createProgram(
  runtime: AnyRuntime,
  prepared: Prepared,
): Promise<GpuProgram | ReferenceProgram> {
  if (!(runtime instanceof Runtime)) return createReferenceProgram(prepared)
  return GpuProgram.create(runtime, prepared).catch((error: unknown) => {
    throw namingLargest(error, prepared)
  })
}

/** Makes the program of a prepared step from references, whose code loads when it is first needed. */
export async function createReferenceProgram(
  ...given: ConstructorParameters<typeof ReferenceProgram>
): Promise<ReferenceProgram> {
  const part = await loadPart('the device reference', () => import('../run/reference-program.ts'))
  return new part.ReferenceProgram(...given)
}
