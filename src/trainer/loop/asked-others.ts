import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { loadPart } from '../../util/load-part.ts'
import type { QueryAnswer } from '../settings/task.ts'
import type { OthersModel, OthersOptions } from './others-model.ts'

/** The model of the others, made when it is first asked. */
export class AskedOthers {
  readonly #options: OthersOptions
  #made: Promise<OthersModel> | undefined

  constructor(options: OthersOptions) {
    this.#options = options
  }

  /** errors: those of `OthersModel.create` and `OthersModel.ask`. */
  async ask(name: string, input: unknown): Promise<QueryAnswer> {
    this.#made ??= this.#make().catch((error) => {
      // Another try may find a model.
      this.#made = undefined
      throw error
    })
    return (await this.#made).ask(name, input)
  }

  /** Frees it, where it is not on `runtime`. */
  drop(runtime?: AnyRuntime): void {
    const made = this.#made
    made?.then(
      (model) => {
        if (model.runtime === runtime) return
        if (this.#made === made) this.#made = undefined
        return model.destroy()
      },
      () => undefined,
    )
  }

  async #make(): Promise<OthersModel> {
    const { OthersModel } = await loadPart(
      'the model of the others',
      () => import('./others-model.ts'),
    )
    return OthersModel.create(this.#options)
  }
}
