import { useState } from 'preact/hooks'
import type { ServerFacts } from '../../peer/room/messages.ts'
import { CopyButton } from '../parts/copy-button.tsx'
import { useLoaded } from '../parts/use-loaded.ts'
import { isLocalPage, outsideLinks } from '../state/server-facts.ts'

interface InviteProps {
  readonly invite: string
  readonly server: ServerFacts | null
  /** Nobody else is here: how others get in is what matters now. */
  readonly isAlone: boolean
}

/** How others get into the room: the link to copy, and to scan. */
export function Invite({ invite, server, isAlone }: InviteProps) {
  const [chosen, setChosen] = useState(0)
  const [isScanning, setScanning] = useState(false)
  const links = outsideLinks(invite, server)
  const link = links[chosen] ?? links[0] ?? invite
  const isForAll = links.length > 0
  const isSeen = isAlone && isForAll
  const [isCodeShown, setCodeShown] = useState(false)
  const { part: code } = useLoaded('the short code', () => import('./short-code.tsx'), isCodeShown)
  const { part: qr } = useLoaded(
    'the QR code',
    () => import('./qr-dialog.tsx'),
    isScanning || isSeen,
  )
  return (
    <div class="invite">
      <label for="invite">
        {isForAll
          ? 'Open this link in more tabs, or on other machines'
          : 'Open this link in more tabs on this machine'}
      </label>
      <input
        id="invite"
        class="mono"
        readOnly
        value={link}
        onFocus={(event) => event.currentTarget.select()}
      />
      <div class="invite-acts">
        <CopyButton text={link} label="Copy link" field="invite" />
        <button type="button" aria-haspopup="dialog" onClick={() => setScanning(true)}>
          QR code
        </button>
        <button
          type="button"
          aria-expanded={isCodeShown}
          onClick={() => setCodeShown(!isCodeShown)}
        >
          Short code
        </button>
      </div>
      {isCodeShown && code && <code.ShownCode link={link} />}
      {isScanning && qr && (
        <qr.QrDialog link={isForAll ? link : null} onClose={() => setScanning(false)} />
      )}
      {isSeen && qr && <qr.QrCode link={link} />}
      {links.length > 1 && <AddressChoice links={links} chosen={chosen} onChoose={setChosen} />}
      <p class="quiet">
        {/* By the address of this page: tabs of one address and browser are linked the quick way. */}
        <a href={invite} target="_blank" rel="noopener noreferrer">
          Open another tab here
        </a>
        . The key after # stays in the tabs; anyone with the link can{' '}
        {server?.asks ? 'ask to join' : 'join'}.
        {!isForAll && (
          <>
            {' '}
            For other machines and phones, start with <code>npm start -- --host</code>.
          </>
        )}
        {isForAll && isLocalPage(invite) && (
          <> Each browser warns once about the certificate: choose “Advanced” and proceed.</>
        )}
      </p>
    </div>
  )
}

interface AddressChoiceProps {
  readonly links: readonly string[]
  readonly chosen: number
  readonly onChoose: (at: number) => void
}

/** Which of this machine's addresses the link has. */
const AddressChoice = ({ links, chosen, onChoose }: AddressChoiceProps) => (
  <p class="quiet">
    This machine has {links.length} addresses; if the link does not open elsewhere, try another:{' '}
    <select
      aria-label="Address in the link"
      value={String(chosen)}
      onChange={(event) => onChoose(Number(event.currentTarget.value))}
    >
      {links.map((one, index) => (
        <option key={one} value={String(index)}>
          {new URL(one).hostname}
        </option>
      ))}
    </select>
  </p>
)
