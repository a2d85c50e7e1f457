import { useState } from 'preact/hooks'

/** Asks for the server's room key. `give` returns whether the tab could keep it. */
export function KeyForm({ give }: { give: (roomKey: string) => boolean }) {
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
