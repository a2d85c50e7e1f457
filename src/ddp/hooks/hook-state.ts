import type { Parameter } from '../../graph/trace/parameter.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { clipped } from '../../util/clipped.ts'
import { DataError, TabringError } from '../../util/errors.ts'
import { isOf, isRecord } from '../../util/kind-of.ts'
import { checkArgument, isCount } from '../../util/options.ts'
import { withArticle } from '../../util/with-article.ts'
import { GradBucket } from './grad-bucket.ts'

/** State of a communication hook, over all ranks. */
export interface HookStateDict {
  readonly [key: string]: number | { readonly [parameter: string]: Float32Array<ArrayBuffer> }
  /** Number of ranks that saved it. */
  readonly worldSize: number
  /** Gradients not sent yet, by the parameter's index in the model: the values of every rank, one rank after another. */
  readonly errors: { readonly [parameter: string]: Float32Array<ArrayBuffer> }
}

/** The model that a hook is registered with. */
interface Model {
  readonly group: CollectiveGroup
  readonly parameters: readonly Parameter[]
}

/**
 * State that a communication hook keeps on this rank between steps, above all the gradients it has not sent yet. Use one per model.
 *
 * Save it in checkpoints, like the optimizer: `saveCheckpoint({ model, optimizer, hook: state })`.
 */
export abstract class HookState {
  /** The part of each parameter's gradient that was lost in compression; added to the next gradient. */
  readonly errors = new Map<Parameter, Float32Array<ArrayBuffer>>()
  #model: Model | undefined
  /** Until it is registered. */
  #loaded: HookStateDict | undefined

  /** @internal Called by `registerCommHook`. */
  bind(model: Model): void {
    this.#model = model
    const loaded = this.#loaded
    this.#loaded = undefined
    if (loaded) this.#loading(loaded, model)()
  }

  /**
   * Returns the states of all ranks, the same on every rank. All ranks call it, between steps.
   *
   * cost: every rank gets the unsent gradients of all ranks, for each as many numbers as the parameters have. errors: `graph.misuse` before
   * `registerCommHook`; the group's.
   */
  async stateDict(): Promise<HookStateDict> {
    const { group, parameters } = this.#registered
    const errors: Record<string, Float32Array<ArrayBuffer>> = {}
    for (const [place, parameter] of parameters.entries()) {
      const own = this.errors.get(parameter)
      if (own) errors[place] = await group.allGatherConcat(own)
    }
    return { worldSize: group.size, errors, ...this.ownState(parameters) }
  }

  /**
   * Restores what `stateDict` returned, before or after `registerCommHook`. With another number of ranks it drops unsent gradients, and logs
   * that once. errors: `data.malformed` for the state of another hook or, once registered, of another model; then nothing changes.
   */
  loadStateDict(state: HookStateDict): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: HookStateDict): () => void {
    const isState =
      isRecord(state) &&
      isCount(state.worldSize) &&
      isRecord(state.errors) &&
      Object.values(state.errors).every((own) => isOf(own, Float32Array))
    if (!isState) throw this.#foreign()
    if (this.#model) return this.#loading(state, this.#model)
    if (!this.ownLoading(state, [])) throw this.#foreign()
    return () => {
      this.#loaded = state
    }
  }

  /** Returns the other state of a hook, the same on all ranks. */
  protected ownState(
    _parameters: readonly Parameter[],
  ): Readonly<Record<string, HookStateDict[string]>> {
    return {}
  }
  /** Checks that; what it returns loads it, and undefined says that it is another hook's. */
  protected ownLoading(
    _state: HookStateDict,
    _parameters: readonly Parameter[],
  ): (() => void) | undefined {
    return () => undefined
  }

  /** @internal Adds what earlier steps lost to a bucket's gradients. */
  addErrors(bucket: GradBucket): void {
    const gradients = bucket.gradients()
    for (const [i, parameter] of bucket.parameters().entries()) {
      const kept = this.errors.get(parameter)
      const values = gradients[i]
      if (kept) for (let k = 0; k < values.length; k++) values[k] += kept[k]
    }
  }

  /** @internal Keeps what a step lost; numbers of a step that overflowed count as 0. `errors`: as long as the bucket. */
  keepErrors(bucket: GradBucket, errors: Float32Array): void {
    const start = bucket.buffer().byteOffset
    const gradients = bucket.gradients()
    for (const [i, parameter] of bucket.parameters().entries()) {
      const { byteOffset, length } = gradients[i]
      const at = (byteOffset - start) / Float32Array.BYTES_PER_ELEMENT
      const kept = errors.slice(at, at + length)
      this.errors.set(
        parameter,
        kept.map((error) => (Number.isFinite(error) ? error : 0)),
      )
    }
  }

  get #registered(): Model {
    if (this.#model) return this.#model
    throw new TabringError(
      'graph.misuse',
      `${this.constructor.name}: this state belongs to no model yet. Pass it to registerCommHook() first.`,
    )
  }

  #foreign(): DataError {
    return new DataError(
      'data.malformed',
      `${this.constructor.name}: this is the state of another hook. Load the state that its own stateDict() returned.`,
    )
  }

  #loading(state: HookStateDict, { group, parameters }: Model): () => void {
    const loadOwn = this.ownLoading(state, parameters)
    if (!loadOwn) throw this.#foreign()
    const isSameSize = state.worldSize === group.size
    const errors = parameters.flatMap((parameter, place) => {
      const all = state.errors[place]
      const { count, name } = parameter
      if (!all || !isSameSize) return []
      if (all.length !== group.size * count) {
        throw new DataError(
          'data.malformed',
          `${this.constructor.name}: expected ${group.size} x ${count} numbers for "${clipped(name)}", got ${all.length}. Load the state of the same model.`,
        )
      }
      return [[parameter, all.slice(group.rank * count, (group.rank + 1) * count)] as const]
    })
    return () => {
      loadOwn()
      this.errors.clear()
      for (const [parameter, own] of errors) this.errors.set(parameter, own)
      if (isSameSize || group.rank > 0 || Object.keys(state.errors).length === 0) return
      console.warn(
        `tabring ${this.constructor.name}: dropped the unsent gradients of ${state.worldSize} ranks, because there are ${group.size} ranks now.`,
      )
    }
  }
}

/** errors: a TypeError, naming the hook, for what is no bucket, and for the state of another hook. */
export function checkHook(
  hook: string,
  bucket: GradBucket,
  state?: HookState,
  State?: new () => HookState,
): void {
  if (State) checkArgument(hook, 'state', state, state instanceof State, withArticle(State.name))
  checkArgument(hook, 'bucket', bucket, bucket instanceof GradBucket, 'the GradBucket of a step')
}
