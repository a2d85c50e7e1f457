import { checkTimeout } from './check-arguments.ts'
import { defaultTimeoutMs } from './store.ts'

/** How long the calls of a store wait, as every store has it: see `Store.timeoutMs`. */
export abstract class TimedStore {
  protected waitMs = defaultTimeoutMs

  get timeoutMs(): number {
    return this.waitMs
  }

  set timeoutMs(value: number) {
    checkTimeout('store', value, true)
    this.waitMs = value
  }
}
