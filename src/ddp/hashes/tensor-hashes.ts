import { compile } from '../../graph/compile/compile.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import { emit, type Tensor } from '../../graph/trace/tensor.ts'
import { paramHash } from '../../kernels/hash/param-hash.ts'

/** 64-bit hashes of tensors, computed where they are: `paramHash` of each. */
export class TensorHashes {
  readonly #program: StepProgram

  private constructor(program: StepProgram) {
    this.#program = program
  }

  /** `tensors`: gives what is hashed, in order, while the program is traced. `runtime`: whose; default: the default device's. */
  static async create(
    runtime: AnyRuntime | undefined,
    tensors: () => readonly Tensor[],
  ): Promise<TensorHashes> {
    const trace = () =>
      Object.fromEntries(
        tensors().map((tensor, i) => [`${i}`, emit(paramHash, [tensor], { length: tensor.count })]),
      )
    return new TensorHashes(await compile(trace, {}, runtime && { runtime }))
  }

  /** Of what the tensors hold now: two words each, in their order. */
  async words(): Promise<Uint32Array<ArrayBuffer>> {
    const hashes = Object.values(await this.#program.run({}))
    return Uint32Array.from(hashes.flatMap((words) => [...words]))
  }

  destroy(): void {
    this.#program.destroy()
  }
}
