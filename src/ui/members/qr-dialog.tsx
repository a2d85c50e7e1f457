import { useEffect, useRef } from 'preact/hooks'
import { QrCode } from './qr-code.tsx'

export { QrCode } from './qr-code.tsx'

interface QrDialogProps {
  /** Null: the page is served to this machine alone, so there is no link that a phone could open. */
  readonly link: string | null
  readonly onClose: () => void
}

/** The room's link for cameras, as large as the window lets it: on a projector a class reads it from the last row. Escape closes it. */
export function QrDialog({ link, onClose }: QrDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current!.showModal(), [])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: a click beside it closes it, as Escape does natively.
    <dialog
      ref={dialog}
      class="qr-dialog"
      aria-labelledby="qr-title"
      onClose={onClose}
      onClick={({ target, currentTarget }) => target === currentTarget && currentTarget.close()}
    >
      <div class="qr-sheet">
        <h2 id="qr-title">
          {link ? 'Scan to join this room' : 'Phones cannot open this link yet'}
        </h2>
        {link ? (
          <>
            <QrCode link={link} />
            <p class="mono qr-link">{link}</p>
          </>
        ) : (
          <p>
            This page is served to this machine only. Stop the server and start it with{' '}
            <code>npm start -- --host</code>: it then prints an address for other machines, whose
            code appears here.
          </p>
        )}
        <button type="button" onClick={() => dialog.current!.close()}>
          Close
        </button>
      </div>
    </dialog>
  )
}
