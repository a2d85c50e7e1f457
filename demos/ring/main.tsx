import { render } from 'preact'
import '../../src/ui/theme/theme.css'
import '../../src/ui/theme/demo-page.css'
import './ring.css'
import { RingPage } from './page.tsx'

render(<RingPage />, document.getElementById('app')!)
