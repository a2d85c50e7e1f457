import type { JsonValue } from '../../util/json-value.ts'
import type { QueryAnswer } from '../../worker/api.ts'
import type { RoomMember } from '../../worker/page/member.ts'
import type { isWatching } from '../state/room-facts.ts'
import type { Store } from '../state/store.ts'
import { ShowsRun } from './shows-run.ts'
import type { RunMaking } from './watched-run.ts'
import { WatchesRun } from './watches-run.ts'

/** Functions that the page has loaded already: parts that come later share them without another file. */
export interface WatchingOptions extends RunMaking {
  readonly store: Store
  readonly member: Pick<RoomMember, 'sendWatch' | 'compute'>
  readonly isWatching: typeof isWatching
}

/** Shows the run of a tab with a rank to onlookers, or that of a rank to a tab without one. Loaded when the room has an onlooker. */
export class Watching {
  readonly #store: Store
  readonly #shows: ShowsRun
  readonly #watches: WatchesRun
  readonly #isOn: () => boolean

  constructor(options: WatchingOptions) {
    const { store, member, isWatching } = options
    this.#store = store
    this.#isOn = () => isWatching(store.snapshot)
    this.#shows = new ShowsRun({
      store,
      query: (name, input) => member.compute.query(name, input),
      send: (message) => member.sendWatch(null, message),
    })
    this.#watches = new WatchesRun({
      ...options,
      send: (to, message) => member.sendWatch(to, message),
    })
  }

  /** The room as it is now. */
  roomIs(): void {
    const { snapshot } = this.#store
    if (this.#isOn()) this.#watches.roomIs()
    else {
      this.#watches.end()
      if (snapshot.run?.isWatched) this.#store.dispatch({ type: 'watched', run: null })
    }
  }

  take(from: string, message: JsonValue): void {
    if (this.#isOn()) this.#watches.take(from, message)
    else this.#shows.take(message)
  }

  query(name: string, input: unknown): Promise<QueryAnswer> {
    return this.#watches.query(name, input)
  }
}
