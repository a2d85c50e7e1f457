import type { JsonValue } from '../../util/json-value.ts'
import type { QueryAnswer } from '../../worker/api.ts'
import type { RoomMember } from '../../worker/page/member.ts'
import type { hasMissed, isWatching } from '../state/room-facts.ts'
import type { Store } from '../state/store.ts'
import { ShowsRun } from './shows-run.ts'
import type { RunMaking } from './watched-run.ts'
import { WatchesRun } from './watches-run.ts'

/** Functions that the page has loaded already: parts that come later share them without another file. */
export interface WatchingOptions extends RunMaking {
  readonly store: Store
  readonly member: Pick<RoomMember, 'sendWatch' | 'compute' | 'update'>
  readonly isWatching: typeof isWatching
  readonly hasMissed: typeof hasMissed
}

/** Query that is answered with the file of the trained model. */
const modelFile = 'model file'
/** A large file goes with no more than the server lets through. units: ms. */
const fileMs = 120_000

/** Shows the run of a tab with a rank to onlookers, or that of a rank to a tab without one, or without the end of a finished run. Loaded when the room has such a tab. */
export class Watching {
  readonly #store: Store
  readonly #shows: ShowsRun
  readonly #watches: WatchesRun
  readonly #options: WatchingOptions
  #missed = false

  constructor(options: WatchingOptions) {
    const { store, member, hasMissed } = options
    this.#options = options
    this.#store = store
    this.#shows = new ShowsRun({
      store,
      query: (name, input) =>
        name === modelFile ? this.#ownFile() : member.compute.query(name, input),
      send: (message) => member.sendWatch(null, message),
    })
    this.#watches = new WatchesRun({
      ...options,
      send: (to, message) => member.sendWatch(to, message),
      isOther: (run) => hasMissed(store.snapshot) && run?.end?.kind !== 'finished',
    })
  }

  get #isOn(): boolean {
    const { isWatching, hasMissed, store } = this.#options
    return isWatching(store.snapshot) || hasMissed(store.snapshot)
  }

  /** The room as it is now. */
  roomIs(): void {
    const { snapshot } = this.#store
    const missed = this.#options.hasMissed(snapshot)
    if (missed !== this.#missed) this.#options.member.update({ missed })
    this.#missed = missed
    if (this.#isOn) this.#watches.roomIs()
    else {
      this.#watches.end()
      if (snapshot.run?.isWatched) this.#store.dispatch({ type: 'watched', run: null })
    }
  }

  take(from: string, message: JsonValue): void {
    if (this.#isOn) this.#watches.take(from, message)
    else this.#shows.take(message)
  }

  query(name: string, input: unknown): Promise<QueryAnswer> {
    return this.#watches.query(name, input)
  }

  /** Address of the file of the model that the watched rank has trained. errors: where it sends none. */
  async modelFile(): Promise<string> {
    const { bytes } = await this.#watches.query(modelFile, null, fileMs)
    return URL.createObjectURL(new Blob([bytes as Uint8Array<ArrayBuffer>]))
  }

  async #ownFile(): Promise<QueryAnswer> {
    const file = await fetch(await this.#options.member.compute.exportParameters())
    return { bytes: new Uint8Array(await file.arrayBuffer()) }
  }
}
