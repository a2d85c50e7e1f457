import { useState } from 'preact/hooks'
import type { Acts } from '../state/acts.ts'
import type { Trouble } from '../state/trouble.ts'
import { withCode } from './with-code.tsx'

/** Troubles that a tab does not have when it computes on the CPU. */
const withoutGpu: ReadonlySet<Trouble['kind']> = new Set(['no-webgpu', 'no-adapter', 'device'])

/** Those that another room does not have. */
const withNewRoom: ReadonlySet<Trouble['kind']> = new Set([
  'bad-link',
  'bad-setting',
  'refused',
  'removed',
])

/** Why this tab cannot take part, and what to do. */
export function Notice({ trouble, acts }: { trouble: Trouble; acts: Acts }) {
  const { kind, title, text, remedies, detail } = trouble
  return (
    <section class="notice" role="alert" data-kind={kind}>
      <h2>{title}</h2>
      <p>{text}</p>
      <h3>What to do</h3>
      <ul>
        {remedies.map((remedy) => (
          <li key={remedy}>{withCode(remedy)}</li>
        ))}
      </ul>
      {kind === 'key' && <KeyForm give={acts.giveRoomKey} />}
      <p class="acts">
        <button type="button" class={kind === 'key' ? undefined : 'go'} onClick={acts.reenter}>
          {kind === 'removed' ? 'Rejoin' : 'Try again'}
        </button>
        {withoutGpu.has(kind) && (
          <a class="button" href={cpuAddress()}>
            Compute on the CPU
          </a>
        )}
        {withNewRoom.has(kind) && (
          <a class="button" href={location.pathname}>
            Open a new room
          </a>
        )}
      </p>
      {detail && (
        <details>
          <summary>Error details</summary>
          <p class="mono error-itself">{detail}</p>
        </details>
      )}
    </section>
  )
}

function cpuAddress(): string {
  const address = new URL(location.href)
  address.searchParams.set('device', 'cpu')
  return address.href
}

/** Asks for the server's room key. `give` returns whether the tab could keep it. */
function KeyForm({ give }: { give: (roomKey: string) => boolean }) {
  const [roomKey, setRoomKey] = useState('')
  const [isLost, setIsLost] = useState(false)
  return (
    <form
      class="key-form"
      onSubmit={(event) => {
        event.preventDefault()
        setIsLost(!give(roomKey.trim()))
      }}
    >
      <label>
        Room key of this server
        <input
          type="password"
          autocomplete="off"
          required
          value={roomKey}
          onInput={({ currentTarget }) => setRoomKey(currentTarget.value)}
        />
      </label>
      <button type="submit" class="go">
        Open the room
      </button>
      {isLost && (
        <p role="alert">This browser stores nothing for this page. Allow it to, then try again.</p>
      )}
    </form>
  )
}
