import { useEffect, useRef, useState } from 'preact/hooks'
import { formatCode, parseCode } from '../../peer/room/code-messages.ts'
import { parseRoomUrl } from '../../peer/room/room-url.ts'
import { formatFragment } from '../../peer/room/secret.ts'
import {
  GivenCode,
  keyOfCode,
  type ShownCode as Shown,
  wordsOf,
} from '../../peer/tab/code-exchange.ts'
import { signalUrl } from '../../peer/tab/signal.ts'
import './short-code.css'

/** The code of this tab's room: it holds while the tab is open, also where the panel that shows it is folded. */
let codeNow: CodeOfRoom | undefined

class CodeOfRoom {
  now: Shown = { is: 'waiting' }
  readonly hash: string
  readonly #given: GivenCode
  readonly #views = new Set<(now: Shown) => void>()

  constructor(link: string) {
    this.hash = new URL(link).hash
    const { link: room } = parseRoomUrl('short code', link)
    const isCurrent = () => location.hash === this.hash
    const given = { url: signalUrl(location), link: room, isCurrent, WebSocket }
    this.#given = new GivenCode(given, (now) => {
      this.now = now
      for (const view of this.#views) view(now)
    })
  }

  close(): void {
    this.#given.close()
  }

  listen(view: (now: Shown) => void): () => void {
    view(this.now)
    this.#views.add(view)
    return () => void this.#views.delete(view)
  }
}

const codeOf = (link: string): CodeOfRoom => {
  if (codeNow?.now.is !== 'closed' && codeNow?.hash === new URL(link).hash) return codeNow
  codeNow?.close()
  codeNow = new CodeOfRoom(link)
  return codeNow
}

/** A code to read aloud, for who cannot scan or copy the room's link. */
export function ShownCode({ link }: { readonly link: string }) {
  const [now, setNow] = useState<Shown>({ is: 'waiting' })
  const [tries, setTries] = useState(0)
  useEffect(() => codeOf(link).listen(setNow), [link, tries])
  const { host, pathname } = new URL(link)
  if (now.is === 'closed')
    return (
      <div class="short-code" role="alert">
        <p>{now.why}</p>
        <button type="button" onClick={() => setTries(tries + 1)}>
          Show another code
        </button>
      </div>
    )
  return (
    <div class="short-code">
      <output aria-label="Short code">
        {now.is === 'open' ? formatCode(now.code) : '··· ···'}
      </output>
      <p class="quiet">
        {now.is === 'open' ? (
          <>
            Others open <b>{host + pathname.replace(/\/$/, '')}</b>, choose <i>Enter a code</i> and
            type this. It holds while this tab is open.
          </>
        ) : (
          'The server is asked for a code.'
        )}
      </p>
    </div>
  )
}

/** Takes the tab into the room whose short code is typed. */
export function EnterCode() {
  const [text, setText] = useState('')
  const [isAsking, setAsking] = useState(false)
  const [trouble, setTrouble] = useState('')
  const field = useRef<HTMLInputElement>(null)
  const isHere = useRef(true)
  useEffect(() => {
    field.current!.focus()
    return () => {
      isHere.current = false
    }
  }, [])
  const enter = async () => {
    const code = parseCode(text)
    if (!code) {
      setTrouble('A code has six to eight letters and digits, and never 0, 1, I, L or O.')
      return
    }
    setTrouble('')
    setAsking(true)
    try {
      const key = await keyOfCode({ url: signalUrl(location), WebSocket }, code)
      // The page enters the room of another link as it does where one is pasted.
      if (isHere.current) location.hash = formatFragment({ key })
    } catch (thrown) {
      setTrouble(wordsOf(thrown))
    } finally {
      setAsking(false)
    }
  }
  return (
    <form
      class="enter-code"
      onSubmit={(event) => {
        event.preventDefault()
        void enter()
      }}
    >
      <label for="short-code">Code of the room</label>
      <input
        ref={field}
        id="short-code"
        class="mono"
        autocomplete="off"
        autocapitalize="characters"
        spellcheck={false}
        placeholder="K74 PXM"
        required
        maxLength={12}
        value={text}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      <button type="submit" class="go" disabled={isAsking}>
        {isAsking ? 'Asking…' : 'Join'}
      </button>
      {trouble && <p role="alert">{trouble}</p>}
    </form>
  )
}
