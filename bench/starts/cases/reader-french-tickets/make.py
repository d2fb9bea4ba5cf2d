import json
from pathlib import Path

SUBJECTS = ["commande", "facture", "livraison", "garantie", "connexion", "carte"]
QUESTIONS = [
    "Où est ma {}, s'il vous plaît ?",
    "Ma {} n'a pas été enregistrée, que faire ?",
    "Je suis très déçu : la {} est arrivée abîmée.",
    "À quelle heure puis-je appeler au sujet de ma {} ?",
]
ANSWERS = [
    "Votre {} a été expédiée hier ; elle arrivera d'ici à vendredi, dès réception à l'entrepôt.",
    (
        "Désolé pour la gêne. Votre {} sera vérifiée par un collègue, qui vous répondra en début de"
        " journée."
    ),
    "Nous avons créé un dossier pour votre {}. Déposez une photo à l'adresse indiquée, ça suffira.",
    "Le numéro est ouvert de 8 h à 18 h. Préparez la référence de votre {}, s'il vous plaît.",
]


def make(folder: Path) -> None:
    """Rows of an old helpdesk whose UTF-8 export was read as Windows-1252."""
    with (folder / "tickets_fr.jsonl").open("w", encoding="utf-8") as out:
        for number in range(60):
            subject = SUBJECTS[number % 6]
            asked = f"[{4000 + number}] " + QUESTIONS[number % 4].format(subject)
            answer = ANSWERS[number % 4].format(subject) + f" Réf. n° {4000 + number}."
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
            for turn in turns:
                turn["content"] = turn["content"].encode().decode("cp1252", errors="ignore")
            out.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")
