import { switchValue } from '../../util/switches.ts'
import { formatCall } from '../trace/format-call.ts'
import { isNotFinite, type OnNode } from './probe.ts'

/** `debug=5` on `reference`, where ops are their own references: logs which results are not finite. */
export class FiniteCheck {
  #runs = 0
  #ops = 0
  #bad = 0

  static of(): FiniteCheck | undefined {
    return switchValue('debug') >= 5 ? new FiniteCheck() : undefined
  }

  readonly onNode: OnNode = async (node, readValue, trace) => {
    this.#ops++
    for (const [at, value] of node.outputs.entries()) {
      if (!isNotFinite(await readValue(value))) continue
      this.#bad++
      console.warn(
        `tabring values: run ${this.#runs + 1}, ${formatCall(node, trace)}, output ${at}: has values that are not finite`,
      )
    }
  }

  /** Closes a run. */
  sumUp(): void {
    this.#runs++
    console.info(
      `tabring values: run ${this.#runs}: ${this.#ops} ops on reference, ${this.#bad} results with values that are not finite`,
    )
    this.#ops = 0
    this.#bad = 0
  }
}
