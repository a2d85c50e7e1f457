import { render } from 'preact'
import './ui/theme/theme.css'
import './ui/theme/docs.css'
import { PageFoot } from './ui/parts/page-foot.tsx'
import { PageTop } from './ui/parts/page-top.tsx'

/** A page of the documentation, whose text is in its HTML: the site's head and foot around it. */

const top = document.getElementById('top')!
/** The site's root, from this page. */
const home = top.dataset.home!

render(<PageTop home={home} tagline="Docs" />, top)
render(<PageFoot home={home} />, document.getElementById('foot')!)

const list = document.querySelector<HTMLDetailsElement>('.docs-list')!
list.open = matchMedia('(min-width: 821px)').matches
