/** How many bytes wait to be sent on each connection, by id, and on all together. */
export class WaitingBytes {
  readonly #byId = new Map<string, number>()
  #total = 0

  get total(): number {
    return this.#total
  }

  of(id: string): number {
    return this.#byId.get(id) ?? 0
  }

  add(id: string, sizeBytes: number): void {
    this.#byId.set(id, this.of(id) + sizeBytes)
    this.#total += sizeBytes
  }

  /** They have left this process. */
  sent(id: string, sizeBytes: number): void {
    if (this.#byId.has(id)) this.add(id, -sizeBytes)
  }

  /** The connection has ended. */
  forget(id: string): void {
    this.#total -= this.of(id)
    this.#byId.delete(id)
  }

  /** The connection on which most waits. */
  get max(): string | undefined {
    let max: string | undefined
    for (const id of this.#byId.keys())
      if (max === undefined || this.of(id) > this.of(max)) max = id
    return max
  }
}
