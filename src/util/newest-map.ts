/** A map of the `max` keys that were set last. */
export class NewestMap<Key, Value> extends Map<Key, Value> {
  readonly #max: number
  readonly #goesFirst: (key: Key) => boolean

  /** `goesFirst`: keys that are dropped before older ones. */
  constructor(max: number, goesFirst: (key: Key) => boolean = () => false) {
    super()
    this.#max = max
    this.#goesFirst = goesFirst
  }

  override set(key: Key, value: Value): this {
    this.delete(key)
    super.set(key, value)
    if (this.size > this.#max) {
      const keys = [...this.keys()]
      this.delete(keys.find(this.#goesFirst) ?? keys[0]!)
    }
    return this
  }
}
